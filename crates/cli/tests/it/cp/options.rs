//! What `ringroad cp` has and GNU's cp has not, and where ours is the house's: codes, messages, events.

use super::compare::{ALL, CONTENTS, differences};
use super::engines;
use super::image::unmount;
use super::tree::{build, bytes, directory, file, noise, symlink};
use crate::support::{BINARY, Outcome, installed, is_root, ringroad, run, run_with_input, skip};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A folder with a tree in `s`.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("s");
    fs::create_dir(&source).unwrap();
    let inside = vec![
        file("a", "alpha"),
        directory("in", vec![file("b.jpg", noise(70_000, 1)), file("c.txt", ""), symlink("l", "b.jpg")]),
        directory("cache", vec![file("d", "x")]),
    ];
    build(&source, &inside);
    folder
}

/// `ringroad cp` in a folder.
fn cp<S: AsRef<OsStr>>(folder: &TempDir, words: impl IntoIterator<Item = S>) -> Outcome {
    run(ringroad(["cp"]).args(words).current_dir(folder.path()).env_remove("RINGROAD_DRIVER"))
}

fn done(outcome: &Outcome) {
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
}

/// The events of `--json`.
fn events(outcome: &Outcome) -> Vec<Value> {
    outcome.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn named<'e>(events: &'e [Value], name: &str) -> Vec<&'e Value> {
    events.iter().filter(|event| event["event"] == name).collect()
}

#[test]
fn mistakes_are_said_in_the_house_form_with_exit_2() {
    let folder = folder();
    for (words, named) in [
        (&["--what", "a", "b"][..], "--what"),
        (&["a"], "'a'"),
        (&["--engine", "warp", "a", "b"], "warp"),
        (&["--driver", "epoll", "a", "b"], "epoll"),
        (&["--driver", "kqueue", "a", "b"], "kqueue"),
        (&["--driver", "threads", "--engine", "ring", "a", "b"], "--engine"),
        (&["--jobs", "0", "a", "b"], "--jobs 0"),
        (&["--in-flight", "5000", "a", "b"], "--in-flight 5000"),
        (&["--exclude", "[", "s", "d", "-r"], "["),
        (&["--durability", "always", "a", "b"], "always"),
        (&["--resume", "-n", "a", "b"], "-n"),
        (&["--resume", "--update=none-fail", "a", "b"], "--update=none-fail"),
    ] {
        let outcome = cp(&folder, words);
        assert_eq!(outcome.code, Some(2), "{words:?}: {outcome:?}");
        assert!(outcome.stderr.starts_with("ringroad: "), "{words:?}: {outcome:?}");
        assert!(outcome.stderr.contains(named), "{words:?}: {outcome:?}");
        assert!(!folder.path().join("b").exists() && !folder.path().join("d").exists(), "{words:?}");
    }
}

#[test]
fn options_that_cannot_be_combined_are_refused_by_their_names() {
    for (words, named) in [
        (&["--list", "l", "--files-from", "f"][..], &["--list", "--files-from"][..]),
        (&["--list", "l", "-i"], &["--list", "-i"]),
        (&["--list", "l", "-L"], &["--list", "-L"]),
        (&["--journal", "j"], &["--journal", "--list", "--resume"]),
        (&["--update-from-manifest", "m", "-n"], &["--update-from-manifest", "-n"]),
        (&["--max-delete", "3"], &["--max-delete", "--delete"]),
        (&["--delete", "--files-from", "f"], &["--delete", "--files-from"]),
        (&["--delete", "-n"], &["--delete", "-n"]),
        (&["--rate", "3", "--engine", "ring-splice"], &["--rate", "--engine ring-splice"]),
        (&["--resume", "-n"], &["--resume", "-n"]),
        (&["--part", "1/2", "-l"], &["--part", "-l"]),
        (&["--finish", "--dry-run"], &["--finish", "--dry-run"]),
        (&["--exclude", "/"], &["--exclude"]),
    ] {
        let outcome = cp(&folder(), [&["-r"][..], words, &["s", "d"]].concat());
        assert_eq!(outcome.code, Some(2), "{words:?}: {outcome:?}");
        assert!(outcome.stderr.starts_with("ringroad: cp: --"), "{outcome:?}");
        let said = outcome.stderr.replace([',', ':', '(', ')', '\n'], " ");
        for name in named {
            assert!(said.contains(&format!(" {name} ")), "{name}: {outcome:?}");
        }
    }
}

#[test]
fn what_cannot_be_copied_is_said_with_its_path_and_exit_1() {
    let folder = folder();
    let outcome = cp(&folder, ["nowhere/a\nb", "d"]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.starts_with("ringroad: stat, on nowhere/a\\nb: No such file"), "{outcome:?}");
    assert!(outcome.stderr.lines().all(|line| line.starts_with("ringroad: ")), "{outcome:?}");
}

#[test]
fn driver_names_choose_engines() {
    let folder = folder();
    fs::write(folder.path().join("f"), "x").unwrap();
    let engine = |words: &[&str], driver: Option<&str>| {
        let mut copy = ringroad(words);
        copy.args(["--json", "f", "g"]).current_dir(folder.path()).env_remove("RINGROAD_DRIVER");
        copy.envs(driver.map(|driver| ("RINGROAD_DRIVER", driver)));
        let outcome = run(&mut copy);
        let events = if outcome.code == Some(0) { events(&outcome) } else { vec![] };
        (outcome.code, events.first().map(|event| event["engine"].as_str().unwrap().to_string()))
    };
    let threads = (Some(0), Some("threads".to_string()));
    assert_eq!(engine(&["cp", "--driver", "threads"], None), threads);
    assert_eq!(engine(&["--driver", "threads", "cp"], None), threads);
    assert_eq!(engine(&["--driver=threads", "cp"], Some("io_uring")), threads);
    assert_eq!(engine(&["cp"], Some("epoll")), threads);
    assert_eq!(engine(&["cp"], Some("kqueue")).0, Some(2));
    if engines().contains(&"ring") {
        let ring = (Some(0), Some("ring".to_string()));
        assert_eq!(engine(&["cp", "--driver", "io_uring"], None), ring);
        assert_eq!(engine(&["cp", "--driver", "uring"], None), ring);
        assert_eq!(engine(&["cp"], Some("io_uring")), ring);
    }
}

#[test]
fn called_cp_it_has_only_gnus_codes_and_hears_nothing_of_drivers() {
    let folder = folder();
    let called = |words: &[&str]| {
        let mut copy = Command::new(BINARY);
        copy.arg0("/usr/bin/cp").args(words).current_dir(folder.path());
        run(copy.env("LC_ALL", "C").env("RINGROAD_DRIVER", "nonsense"))
    };
    done(&called(&["s/a", "b"]));
    for words in [&["--what"][..], &["--engine", "warp", "a", "b"], &["nope", "b"], &["-S"]] {
        let outcome = called(words);
        assert_eq!(outcome.code, Some(1), "{words:?}: {outcome:?}");
        assert!(outcome.stderr.starts_with("cp: "), "{words:?}: {outcome:?}");
    }
}

/// As GNU's since 9.2; before, it was 0.
#[test]
fn a_replacement_that_was_declined_is_exit_1() {
    let folder = folder();
    fs::write(folder.path().join("t"), "old").unwrap();
    for (answer, code, text) in [("n\n", 1, "old"), ("", 1, "old"), ("y\n", 0, "alpha")] {
        let mut copy = ringroad(["cp", "-i", "s/a", "t"]);
        let outcome = run_with_input(copy.current_dir(folder.path()), answer.as_bytes());
        assert_eq!(outcome.code, Some(code), "{answer:?}: {outcome:?}");
        assert_eq!(outcome.stderr, "ringroad: overwrite t? ", "{answer:?}");
        assert_eq!(fs::read_to_string(folder.path().join("t")).unwrap(), text, "{answer:?}");
    }
}

/// The words are GNU's: its own tests look for them. What happens is ours, and depends on the file system.
#[test]
fn debug_says_of_each_file_how_it_was_copied_and_what_was_skipped() {
    let folder = folder();
    let said = |words: &[&str]| {
        let outcome = cp(&folder, words);
        done(&outcome);
        outcome.text().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let how = |offload: &str, reflink: &str, holes: &str| {
        format!("copy offload: {offload}, reflink: {reflink}, sparse detection: {holes}")
    };
    // Blocks are not shared when they must not be, so these say the same everywhere.
    let never = ["--debug", "--reflink=never"];
    let line = said(&[&never[..], &["s/a", "a"]].concat());
    assert_eq!(line, ["s/a -> a", &how("avoided", "no", "no")]);
    let line = said(&[&never[..], &["s/in/c.txt", "c"]].concat());
    assert_eq!(line, ["s/in/c.txt -> c", &how("unknown", "no", "unknown")], "an empty file");
    let line = said(&[&never[..], &["--sparse=always", "s/a", "zeros"]].concat());
    assert_eq!(line, ["s/a -> zeros", &how("avoided", "no", "zeros")]);
    let hole = fs::File::create(folder.path().join("hole")).unwrap();
    hole.set_len(1 << 20).unwrap();
    if hole.metadata().unwrap().blocks() == 0 {
        let line = said(&[&never[..], &["hole", "hole2"]].concat());
        assert_eq!(line, ["hole -> hole2", &how("avoided", "no", "SEEK_HOLE")]);
        let line = said(&[&never[..], &["--sparse=never", "hole", "filled"]].concat());
        assert_eq!(line, ["hole -> filled", &how("avoided", "no", "no")]);
    }
    let line = said(&["--debug", "--sparse=never", "s/in/b.jpg", "full"]);
    assert_eq!(line, ["s/in/b.jpg -> full", &how("avoided", "no", "no")], "nothing that could leave holes");
    let line = said(&["--debug", "--attributes-only", "s/a", "bare"]);
    assert_eq!(line, ["s/a -> bare"], "no contents, nothing of how they came");
    let line = said(&["--debug", "s/in/b.jpg", "b"]);
    let moved = [how("yes", "unsupported", "no"), how("unsupported", "unsupported", "no")];
    let shared = how("unknown", "yes", "unknown");
    assert!(line.len() == 2 && (moved.contains(&line[1]) || line[1] == shared), "{line:?}");
    // A directory and a link have no contents; a skipped file is named.
    let lines = said(&["--debug", "-r", "s/in", "d"]);
    assert_eq!(lines.iter().filter(|line| line.starts_with("copy offload")).count(), 2, "{lines:?}");
    assert_eq!(said(&["--debug", "-n", "s/a", "a"]), ["skipped a"]);
    assert_eq!(said(&["-v", "-n", "s/a", "a"]), [""; 0], "-v alone says nothing of it");
}

#[test]
fn json_is_an_event_a_line_with_totals_that_add_up() {
    let folder = folder();
    let outcome = cp(&folder, ["-r", "--json", "s", "nope", "d"]);
    // Two sources need a directory.
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    fs::create_dir(folder.path().join("d")).unwrap();
    let outcome = cp(&folder, ["-r", "--json", "s", "nope", "d"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let events = events(&outcome);
    assert_eq!(events[0]["event"], "start");
    assert!(events[0]["why"].as_str().is_some_and(|why| !why.is_empty()), "{events:?}");
    let error = named(&events, "error")[0];
    assert_eq!((error["path"].as_str(), error["errno"].as_i64()), (Some("nope"), Some(2)));
    let done = events.last().unwrap();
    assert_eq!(done["event"], "done");
    let number = |key: &str| done[key].as_u64().unwrap();
    assert_eq!((number("scanned"), number("copied"), number("failed")), (9, 8, 1), "{done}");
    assert_eq!(number("scanned"), number("copied") + number("skipped") + number("failed"));
    assert_eq!((number("files"), number("bytes"), number("exit_code")), (4, 70_006, 1));
}

/// What is read twice and is not the same: the kernel makes a new one each time it is asked.
const NEVER_THE_SAME: &str = "/proc/sys/kernel/random/uuid";

#[test]
fn a_copy_that_is_not_what_its_source_is_ends_with_exit_4_and_is_removed() {
    for engine in engines() {
        let folder = folder();
        let words = ["--verify", "--engine", engine, NEVER_THE_SAME, "out"];
        let outcome = cp(&folder, words);
        assert_eq!(outcome.code, Some(4), "{engine}: {outcome:?}");
        assert!(outcome.stderr.starts_with("ringroad: "), "{outcome:?}");
        assert!(outcome.stderr.contains("'out'") || outcome.stderr.contains("out"), "{outcome:?}");
        assert!(
            !folder.path().join("out").exists(),
            "{engine}: what is wrong is not left as if it were right"
        );
        // The other sources are copied all the same, and the worst decides about the code.
        fs::create_dir(folder.path().join("d")).unwrap();
        let words = ["-r", "--verify", "--engine", engine, NEVER_THE_SAME, "nope", "s", "d"];
        assert_eq!(cp(&folder, words).code, Some(4), "{engine}");
        assert!(folder.path().join("d/s/a").exists() && !folder.path().join("d/uuid").exists());
    }
}

#[test]
fn the_last_event_of_json_tells_the_exit_code() {
    for (words, code) in [
        (&["a", "t"][..], 0),
        (&["s/in", "t"], 1),
        (&["nope", "t"], 1),
        (&["--verify", NEVER_THE_SAME, "t"], 4),
    ] {
        let folder = folder();
        fs::write(folder.path().join("a"), "alpha").unwrap();
        let outcome = cp(&folder, ["--json"].iter().chain(words));
        assert_eq!(outcome.code, Some(code), "{words:?}: {outcome:?}");
        let events = events(&outcome);
        let done = events.last().unwrap();
        assert_eq!(
            (&done["event"], &done["exit_code"]),
            (&Value::from("done"), &Value::from(code)),
            "{words:?}"
        );
        let errors = named(&events, "error").len();
        assert_eq!(errors > 0, code != 0, "{words:?}: {events:?}");
        assert_eq!(done["errors"].as_u64(), Some(errors as u64), "{done}");
    }
    // What was never begun has no events.
    let refused = cp(&folder(), ["--json", "--jobs", "0", "a", "b"]);
    assert_eq!((refused.code, refused.text().as_str()), (Some(2), ""), "{refused:?}");
}

#[test]
fn a_path_that_is_no_text_comes_whole_in_json() {
    let folder = folder();
    let outcome = cp(&folder, [OsStr::new("--json"), &bytes(b"no\xff"), OsStr::new("d")]);
    let events = events(&outcome);
    assert_eq!(named(&events, "error")[0]["path_b64"], "bm//");
}

#[test]
fn a_copy_that_is_refused_has_its_error_and_its_end_among_the_events() {
    let folder = folder();
    for (words, code, what, path) in [
        (&["--exclude", "["][..], 2, "begin", Value::Null),
        (&["--manifest", "s"], 1, "create manifest", Value::from("s")),
    ] {
        let outcome = cp(&folder, [&["-r", "--json"][..], words, &["s", "d"]].concat());
        assert_eq!(outcome.code, Some(code), "{outcome:?}");
        let events = events(&outcome);
        let error = named(&events, "error")[0];
        assert_eq!((&error["what"], &error["path"]), (&Value::from(what), &path), "{error}");
        assert!(error["why"].as_str().is_some_and(|why| outcome.stderr.contains(why)), "{error} {outcome:?}");
        let done = events.last().unwrap();
        assert_eq!((&done["event"], &done["exit_code"]), (&Value::from("done"), &Value::from(code)));
        assert_eq!(done["scanned"], 0);
    }
}

#[test]
fn the_last_event_has_the_engine_that_the_copy_came_to() {
    let folder = folder();
    for engine in engines() {
        let outcome = cp(&folder, ["-r", "--json", "--engine", engine, "s", "d"]);
        let events = events(&outcome);
        assert_eq!(events.last().unwrap()["engine"], *engine, "{outcome:?}");
        assert!(events.last().unwrap()["why"].is_string(), "{outcome:?}");
    }
}

#[test]
fn the_manifest_is_what_b3sum_checks() {
    let folder = folder();
    fs::write(folder.path().join("s/new\nline"), "y").unwrap();
    done(&cp(&folder, ["-r", "--manifest", "m", "s", "d"]));
    let text = fs::read_to_string(folder.path().join("m")).unwrap();
    let paths: Vec<&str> = text.lines().map(|line| line.split_once("  ").unwrap().1).collect();
    assert_eq!(paths, ["a", "cache/d", "in/b.jpg", "in/c.txt", "new\\nline"], "{text}");
    // BLAKE3 of nothing, from its specification's test vectors.
    let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262  in/c.txt";
    assert!(text.lines().any(|line| line == empty), "{text}");
    assert!(text.lines().last().unwrap().starts_with('\\'), "{text}");
    if installed("b3sum") {
        let mut check = Command::new("b3sum");
        let outcome = run(check.args(["--check", "../m"]).current_dir(folder.path().join("d")));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
    }
}

#[test]
fn a_manifest_goes_to_standard_output_whatever_that_is() {
    let folder = folder();
    // As /dev/stdout, which is the whole system's.
    std::os::unix::fs::symlink("/proc/self/fd/1", folder.path().join("stdout")).unwrap();
    let copy = "\"$0\" cp -r --manifest";
    for (nth, script) in [
        format!("{copy} stdout s d0"),
        format!("{copy} stdout s d1 | cat"),
        format!("{copy} stdout s d2 >out; cat out"),
        format!("({copy} stdout s d3; echo after) >out; head -n -1 out; tail -n 1 out | grep -qx after"),
        format!("echo before >out; {copy} stdout s d4 >>out; tail -n +2 out; grep -qx before out"),
    ]
    .iter()
    .enumerate()
    {
        let outcome =
            run(Command::new("sh").args(["-c", script.as_str(), BINARY]).current_dir(folder.path()));
        done(&outcome);
        let said = outcome.text();
        let listed: Vec<_> = said.lines().map(|line| line.split_once("  ").unwrap().1).collect();
        assert_eq!(listed, ["a", "cache/d", "in/b.jpg", "in/c.txt"], "{script}");
        assert!(folder.path().join(format!("d{nth}/a")).exists(), "{script}");
    }
}

#[test]
fn a_manifest_does_not_take_the_place_of_a_copy_in_silence() {
    let folder = folder();
    fs::create_dir(folder.path().join("d")).unwrap();
    let outcome = cp(&folder, ["-rT", "--manifest", "d/a", "s", "d"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let said = outcome.stderr.lines().next().unwrap();
    let why = "the manifest will be written there (give one of the two another name)";
    assert_eq!(said, format!("ringroad: copy, on d/a (with s/a): {why}"));
    let text = fs::read_to_string(folder.path().join("d/a")).unwrap();
    let paths: Vec<&str> = text.lines().map(|line| line.split_once("  ").unwrap().1).collect();
    assert_eq!(paths, ["cache/d", "in/b.jpg", "in/c.txt"], "{text}");
}

#[test]
fn the_manifest_in_json_has_sizes_and_times() {
    let folder = folder();
    fs::write(folder.path().join("s").join(bytes(b"\xff")), "y").unwrap();
    done(&cp(&folder, ["-a", "--manifest", "m.ndjson", "s", "d"]));
    let text = fs::read_to_string(folder.path().join("m.ndjson")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let jpeg = lines.iter().find(|line| line["path"] == "in/b.jpg").unwrap();
    let about = folder.path().join("s/in/b.jpg").metadata().unwrap();
    assert_eq!(jpeg["size"], 70_000);
    assert_eq!(jpeg["mtime_ns"], about.mtime() * 1_000_000_000 + about.mtime_nsec());
    assert_eq!(jpeg["blake3"].as_str().unwrap().len(), 64);
    assert!(jpeg.get("path_b64").is_none_or(Value::is_null));
    assert!(lines.iter().any(|line| line["path_b64"] == "/w=="), "{text}");
}

#[test]
fn verified_copies_are_counted() {
    for engine in engines() {
        let folder = folder();
        let outcome = cp(&folder, ["-r", "--verify", "--json", "--engine", engine, "s", "d"]);
        done(&outcome);
        assert_eq!(events(&outcome).last().unwrap()["verified"], 4, "{engine}");
    }
}

#[test]
fn excluded_names_stay_out_with_all_that_is_in_them() {
    let folder = folder();
    done(&cp(&folder, ["-r", "--exclude", "cache", "--exclude", "in/*.jpg", "s", "d"]));
    let mut found: Vec<PathBuf> = vec![];
    let mut folders = vec![folder.path().join("d")];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            found.push(path.strip_prefix(folder.path().join("d")).unwrap().to_path_buf());
        }
    }
    found.sort();
    assert_eq!(found, ["a", "in", "in/c.txt", "in/l"].map(PathBuf::from));
}

#[test]
fn resume_leaves_what_is_whole_and_copies_what_is_not() {
    for engine in engines() {
        let folder = folder();
        let resume = || cp(&folder, ["-r", "--resume", "--json", "--engine", engine, "-T", "s", "d"]);
        done(&resume());
        let at = |name: &str| folder.path().join("d").join(name);
        let inode = |name: &str| at(name).metadata().unwrap().ino();
        let whole = inode("in/b.jpg");
        // Shorter, and as old as its source: not whole.
        let about = folder.path().join("s/a").metadata().unwrap();
        fs::write(at("a"), "alp").unwrap();
        fs::File::options()
            .write(true)
            .open(at("a"))
            .unwrap()
            .set_modified(about.modified().unwrap())
            .unwrap();
        // As long as its source, and a nanosecond younger: another file.
        let about = folder.path().join("s/cache/d").metadata().unwrap();
        fs::write(at("cache/d"), "y").unwrap();
        let later = about.modified().unwrap() + std::time::Duration::from_nanos(1);
        fs::File::options().write(true).open(at("cache/d")).unwrap().set_modified(later).unwrap();
        let again = resume();
        done(&again);
        assert_eq!(events(&again).last().unwrap()["files"], 2, "{engine}");
        assert_eq!(inode("in/b.jpg"), whole, "{engine}");
        assert_eq!(
            differences(&folder.path().join("s"), &folder.path().join("d"), CONTENTS),
            [""; 0],
            "{engine}"
        );
    }
}

/// As GNU cp: the directory is made for the parents, and cannot be made again for the source.
#[test]
fn parents_of_a_dot_fail_where_the_directory_had_to_be_made() {
    let folder = folder();
    fs::create_dir(folder.path().join("d")).unwrap();
    for last in [".", ".."] {
        let source = format!("s/in/{last}");
        let outcome = cp(&folder, ["-r", "--parents", &source, "d"]);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(outcome.stderr.contains(&format!("d/s/in/{last}: File exists")), "{outcome:?}");
        done(&cp(&folder, ["-r", "--parents", &source, "d"]));
        fs::remove_dir_all(folder.path().join("d/s")).unwrap();
    }
}

/// Of a deep tree the upper directories are closed on the way, and opened again to be finished.
#[test]
fn a_directory_link_that_is_kept_is_found_again_when_descriptors_are_few() {
    for engine in engines() {
        let folder = tempfile::tempdir().unwrap();
        let deep = "s/1/2/3/4/5/6/7/8/9/a/b/c";
        fs::create_dir_all(folder.path().join(deep)).unwrap();
        fs::write(folder.path().join(deep).join("f"), "x").unwrap();
        fs::create_dir_all(folder.path().join("d")).unwrap();
        fs::create_dir_all(folder.path().join("e")).unwrap();
        std::os::unix::fs::symlink("../e", folder.path().join("d/s")).unwrap();
        let script = "ulimit -n 64; exec \"$0\" cp -a --keep-directory-symlink --engine \"$1\" s d";
        let mut shell = Command::new("sh");
        done(&run(shell.args(["-c", script, BINARY, engine]).current_dir(folder.path())));
        assert!(folder.path().join("d/s").is_symlink(), "{engine}");
        let (source, kept) = (folder.path().join("s"), folder.path().join("e"));
        assert_eq!(differences(&source, &kept, ALL), [""; 0], "{engine}");
    }
}

#[test]
fn direct_copies_are_whole_whatever_their_size() {
    for engine in engines() {
        let folder = folder();
        for size in [0, 1, 511, 4096, 4097, (1 << 20) + 3] {
            fs::write(folder.path().join(format!("s/{size}")), noise(size, 7)).unwrap();
        }
        done(&cp(&folder, ["-r", "--direct", "--engine", engine, "s", "d"]));
        assert_eq!(
            differences(&folder.path().join("s"), &folder.path().join("d"), CONTENTS),
            [""; 0],
            "{engine}"
        );
    }
}

#[test]
fn explain_tells_the_engine_why_and_each_phase() {
    let folder = folder();
    let outcome = cp(&folder, ["-r", "--explain", "s", "d"]);
    done(&outcome);
    let text = outcome.text();
    assert!(text.starts_with("engine "), "{text}");
    for phase in ["scan", "open", "read", "create", "write", "metadata"] {
        assert!(text.lines().any(|line| line.starts_with(phase)), "{phase}: {text}");
    }
}

#[test]
fn a_full_destination_ends_cleanly_with_exit_3() {
    if !is_root() {
        return skip("a full destination", "mounting a small file system needs root");
    }
    let folder = folder();
    let small = folder.path().join("small");
    fs::create_dir(&small).unwrap();
    let mut mount = Command::new("mount");
    let mounted = run(mount.args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(&small));
    if mounted.code != Some(0) {
        return skip("a full destination", &mounted.stderr);
    }
    for nth in 0..8 {
        fs::write(folder.path().join(format!("s/{nth}")), noise(90_000, nth)).unwrap();
    }
    let outcome = cp(&folder, ["-r", "--json", "s", "small"]);
    // Looked at before it is unmounted: everything there is whole.
    let torn: Vec<PathBuf> = fs::read_dir(small.join("s"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .filter(|path| {
            let source = folder.path().join("s").join(path.file_name().unwrap());
            fs::read(path).unwrap() != fs::read(&source).unwrap_or_default()
        })
        .collect();
    unmount(&small);
    assert_eq!(outcome.code, Some(3), "{outcome:?}");
    assert_eq!(events(&outcome).last().unwrap()["exit_code"], 3, "{outcome:?}");
    assert!(torn.is_empty(), "{torn:?}: {outcome:?}");
}

/// GNU's cp says it too, and leaves what the list gave another user with the group.
#[test]
fn an_access_list_that_cannot_be_kept_is_reported_and_grants_no_rights() {
    if !is_root() || !installed("setfacl") || !installed("unshare") {
        return skip("a target without access lists", "needs root, setfacl and unshare");
    }
    let folder = folder();
    std::os::unix::fs::symlink(BINARY, folder.path().join("cp")).unwrap();
    let script =
        "echo x >f; chmod 600 f; setfacl -m u:65534:rw f || exit 77; mkdir m t; setfacl -d -m u:65534:rw t;
        chmod 640 s/a; mount -t ramfs none m || exit 77; for i in f s/a; do ./cp -p $i m; echo $?; done;
        stat -c %a m/f m/a; ./cp -rp t m; echo $?";
    let mut shell = Command::new("unshare");
    let outcome = run(shell.args(["-m", "sh", "-c", script]).current_dir(folder.path()).env("LC_ALL", "C"));
    if outcome.code == Some(77) {
        return skip("a target without access lists", &outcome.stderr);
    }
    // The default list of a directory is no right to it: as with GNU cp it is no error.
    assert_eq!(outcome.text(), "1\n0\n600\n640\n0\n", "{outcome:?}");
    assert_eq!(outcome.stderr, "cp: preserving permissions for 'm/f': Operation not supported\n");
}

#[test]
fn a_socket_without_its_mode_gets_what_its_maker_would_give_it() {
    let folder = folder();
    let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("s/socket")).unwrap();
    let script = "umask 022; \"$0\" cp -r --no-preserve=mode s d; stat -c %A d/socket d/a";
    let outcome = run(Command::new("sh").args(["-c", script, BINARY]).current_dir(folder.path()));
    done(&outcome);
    assert_eq!(outcome.text(), "srwxr-xr-x\n-rw-r--r--\n");
}

/// As in a chroot or an initial ramdisk.
#[test]
fn without_proc_modes_are_kept_and_what_has_no_attributes_lacks_none() {
    if !is_root() || !installed("unshare") {
        return skip("copying without /proc", "needs root and unshare");
    }
    let folder = folder();
    std::os::unix::fs::symlink(BINARY, folder.path().join("cp")).unwrap();
    let script =
        "umask 022; mkdir t; echo x >t/f; mkfifo t/p; ln -s f t/l; chmod 666 t/p; chmod 644 t/f; chmod 2751 t
        for name in f p l; do chown -h 65534 t/$name; done
        mount -t tmpfs none /proc || exit 77
        ./cp -a t a; echo $?; stat -c '%A %u' a a/f a/p a/l
        ./cp -r --preserve=ownership t o; echo $?; stat -c '%A %u' o/f o/p
        ./cp -rd --preserve=xattr t x; echo $?; stat -c %A x/p
        ./cp -r t r; echo $?; stat -c '%A' r r/f r/p";
    let mut shell = Command::new("unshare");
    let outcome = run(shell.args(["-m", "sh", "-c", script]).current_dir(folder.path()).env("LC_ALL", "C"));
    if outcome.code == Some(77) {
        return skip("copying without /proc", &outcome.stderr);
    }
    let of_archive = "drwxr-s--x 0\n-rw-r--r-- 65534\nprw-rw-rw- 65534\nlrwxrwxrwx 65534\n";
    let plain = "drwxr-x--x\n-rw-r--r--\nprw-r--r--\n";
    let owned = "-rw-r--r-- 65534\nprw-r--r-- 65534\n";
    assert_eq!(outcome.text(), format!("0\n{of_archive}0\n{owned}0\nprw-r--r--\n0\n{plain}"), "{outcome:?}");
    assert_eq!(outcome.stderr, "");
}

#[test]
fn resume_tells_again_what_a_copy_lacks_until_it_has_it() {
    if !is_root() || !installed("unshare") {
        return skip("a target without attributes", "needs root and unshare");
    }
    let folder = folder();
    let flags = rustix::fs::XattrFlags::empty();
    if let Err(why) = rustix::fs::setxattr(folder.path().join("s/a"), "user.mark", b"1", flags) {
        return skip("a target without attributes", &why.to_string());
    }
    for engine in engines() {
        let script = "mkdir -p m; mount -t ramfs none m || exit 77
            copy() { \"$0\" cp -rT --preserve=xattr --resume --engine \"$1\" s m 2>/dev/null; echo $?; }
            copy; copy; test m/in/b.jpg -nt s/in/b.jpg; echo $?";
        let script = script.replace("$1", engine);
        let mut shell = Command::new("unshare");
        let outcome = run(shell.args(["-m", "sh", "-c", &script, BINARY]).current_dir(folder.path()));
        if outcome.code == Some(77) {
            return skip("a target without attributes", &outcome.stderr);
        }
        assert_eq!(outcome.text(), "1\n1\n1\n", "{engine}: {outcome:?}");
    }
}

#[test]
fn a_copy_that_its_owner_may_not_read_is_verified_all_the_same() {
    if !is_root() {
        return skip("a source for its group only", "needs root to become somebody of it");
    }
    let folder = folder();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let source = folder.path().join("g");
    fs::write(&source, "contents").unwrap();
    std::os::unix::fs::chown(&source, None, Some(65_534)).unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o040)).unwrap();
    let copy = crate::support::own_copy(folder.path());
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    for engine in engines() {
        for words in [&["--verify"][..], &["--verify", "-p"]] {
            let mut command = Command::new(&copy);
            command.args(["cp", "--engine", engine]).args(words).args(["g", "h"]);
            done(&run(command.current_dir(folder.path()).uid(65_534).gid(65_534)));
            let made = folder.path().join("h");
            assert_eq!(fs::read(&made).unwrap(), b"contents", "{engine}");
            assert_eq!(made.metadata().unwrap().mode() & 0o7777, 0o040, "{engine}: {words:?}");
            fs::remove_file(made).unwrap();
        }
    }
}

#[test]
fn without_its_owner_a_file_has_no_sticky_bit_and_a_directory_keeps_it() {
    if !is_root() {
        return skip("owners that cannot be kept", "needs root to become somebody else");
    }
    let folder = folder();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let source = folder.path().join("sticky");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("a"), "alpha").unwrap();
    fs::set_permissions(source.join("a"), fs::Permissions::from_mode(0o1644)).unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o1777)).unwrap();
    let copy = crate::support::own_copy(folder.path());
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(&copy);
    command.args(["cp", "-a", "sticky", "d"]).current_dir(folder.path()).uid(65_534).gid(65_534);
    done(&run(&mut command));
    let mode = |name: &str| folder.path().join(name).metadata().unwrap().mode() & 0o7777;
    assert_eq!((mode("d"), mode("d/a")), (0o1777, 0o644));
}

#[test]
fn a_mode_that_forbids_writing_is_asked_about_in_gnus_words() {
    if is_root() {
        // Run as a user that the mode applies to, if the system has one.
        let folder = folder();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(folder.path().join("t"), "old").unwrap();
        fs::set_permissions(folder.path().join("t"), fs::Permissions::from_mode(0o444)).unwrap();
        let copy = crate::support::own_copy(folder.path());
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(&copy);
        command.arg0("cp").args(["-i", "s/a", "t"]).current_dir(folder.path()).uid(65_534).gid(65_534);
        let outcome = run(command.env("LC_ALL", "C").stdin(std::process::Stdio::null()));
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert_eq!(outcome.stderr, "cp: unwritable 't' (mode 0444, r--r--r--); try anyway? ");
    } else {
        skip("the question about protected files", "needs root to become somebody else");
    }
}

/// GNU's 9.1 tries the first number for ever once it is taken.
#[test]
fn numbered_backups_that_cannot_be_listed_are_counted_up_to() {
    if !is_root() {
        return skip("a directory that may not be listed", "needs root to become somebody else");
    }
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("wx")).unwrap();
    for (name, mode) in [("", 0o755), ("wx", 0o333)] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let program = crate::support::own_copy(folder.path());
    for text in ["1", "2", "3", "4"] {
        fs::write(at("a"), text).unwrap();
        let mut copy = Command::new(&program);
        copy.args(["cp", "--backup=numbered", "a", "wx/f"]).current_dir(folder.path());
        done(&run(copy.uid(65_534).gid(65_534)));
    }
    for (name, text) in [("f.~1~", "1"), ("f.~2~", "2"), ("f.~3~", "3"), ("f", "4")] {
        assert_eq!(fs::read_to_string(at("wx").join(name)).unwrap(), text, "{name}");
    }
}

/// What cannot be opened cannot be synced: that is said before, and not when the copy is there.
#[test]
fn into_a_directory_that_may_not_be_listed_nothing_is_copied_with_durability() {
    if !is_root() {
        return skip("a directory that may not be listed", "needs root to become somebody else");
    }
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let set = |name: &str, mode| fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    fs::create_dir_all(at("wx/s")).unwrap();
    for (name, mode) in [("", 0o755), ("wx/s", 0o333), ("wx", 0o333)] {
        set(name, mode);
    }
    let program = crate::support::own_copy(folder.path());
    let copied = |words: &str| {
        let mut copy = Command::new(&program);
        run(copy.arg("cp").args(words.split(' ')).current_dir(folder.path()).uid(65_534).gid(65_534))
    };
    for durability in ["end", "file"] {
        for words in ["s/a wx/f", "-r s/in wx", "--parents s/in/c.txt wx"] {
            let outcome = copied(&format!("--durability {durability} {words}"));
            assert_eq!(outcome.code, Some(1), "{outcome:?}");
            let said = outcome.stderr.lines().next();
            assert_eq!(said, Some("ringroad: open directory, on wx: Permission denied"), "{words}");
        }
    }
    let made: Vec<_> = fs::read_dir(at("wx")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(made == ["s"] && fs::read_dir(at("wx/s")).unwrap().next().is_none(), "{made:?}");
    done(&copied("s/a wx/f"));
}

#[test]
fn in_a_working_directory_that_may_not_be_entered_absolute_paths_are_copied_and_relative_ones_told() {
    if !is_root() || !installed("setpriv") {
        return skip("a working directory that may not be entered", "needs root and setpriv");
    }
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let set = |name: &str, mode| fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    fs::create_dir(at("closed")).unwrap();
    fs::create_dir(at("d")).unwrap();
    fs::write(at("closed/x"), "x").unwrap();
    let copy = crate::support::own_copy(folder.path());
    for (name, mode) in [("", 0o755), ("closed", 0o700), ("d", 0o777)] {
        set(name, mode);
    }
    done(&run(Command::new("chmod").args(["-R", "a+rX"]).arg(at("s"))));
    let copied = |sources: &[&str], to: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy).args(["cp", "-r"]);
        for source in sources {
            command.arg(if source.starts_with('x') { PathBuf::from(source) } else { at(source) });
        }
        run(command.arg(at(to)).current_dir(at("closed")))
    };
    done(&copied(&["s/a"], "d/one"));
    done(&copied(&["s/a", "s/in"], "d"));
    assert_eq!(differences(&at("s/in"), &at("d/in"), CONTENTS), [""; 0]);
    // One after the other, to the same place.
    let outcome = copied(&["s/cache", "x", "s/in/c.txt"], "d");
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let said: Vec<&str> = outcome.stderr.lines().collect();
    assert!(said.len() == 2 && said[0] == "ringroad: stat, on x: Permission denied", "{outcome:?}");
    assert!(at("d/cache/d").exists() && at("d/c.txt").exists() && !at("d/x").exists());
}

#[test]
fn a_full_file_system_stops_nothing_beside_it_and_the_last_line_says_what_is_missing() {
    if !is_root() || !installed("unshare") {
        return skip("a full file system below the target", "needs root and unshare");
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "mkdir -p s/a s/b s/c d/b
        for x in a b c; do for i in 1 2 3 4 5 6 7 8; do head -c 50000 /dev/zero | tr '\\0' $i >s/$x/f$i; done; done
        mount -t tmpfs -o size=200k,nr_inodes=20 t d/b || exit 77
        \"$0\" cp -rT --engine \"$1\" s d; echo $?; ls d/a d/c | grep -c f
        mount -t tmpfs -o ro t d/b; mkdir s/b/sub
        \"$0\" cp -rT --json --engine \"$1\" s d 2>/dev/null | tail -1; ls d/a d/c | grep -c f";
    for engine in engines() {
        let _ = fs::remove_dir_all(folder.path().join("s"));
        let _ = fs::remove_dir_all(folder.path().join("d"));
        let mut shell = Command::new("unshare");
        let shell = shell.args(["-m", "sh", "-c", script, BINARY, engine]);
        let outcome = run(shell.current_dir(folder.path()).env_remove("RINGROAD_DRIVER"));
        if outcome.code == Some(77) {
            return skip("a full file system below the target", &outcome.stderr);
        }
        let text = outcome.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(&lines[..2], ["3", "16"], "{engine}: {outcome:?}");
        let last = outcome.stderr.lines().last().unwrap();
        let begin = "ringroad: cp: missing on the file system of d/b (device 0:";
        assert!(
            last.starts_with(begin) && last.ends_with(" entries: No space left on device"),
            "{engine}: {last}"
        );
        let done: Value = serde_json::from_str(lines[2]).unwrap();
        let [missing] = done["missing"].as_array().unwrap().as_slice() else { panic!("{engine}: {done}") };
        let told = (&missing["place"], &missing["entries"], &missing["directories"], &missing["why"]);
        let wanted = (&"d/b".into(), &9.into(), &1.into(), &"Read-only file system".into());
        assert_eq!((told, lines[3], &done["full"]), (wanted, "16", &false.into()), "{engine}");
    }
}
