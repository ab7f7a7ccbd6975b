//! `--resume` and `--dry-run` as a user types them, a hung source, and little memory.

use super::compare::{CONTENTS, differences};
use super::fuse::{Faults, Fuse, put};
use super::tree::noise;
use crate::fifo::writer_of;
use crate::support::{BINARY, Kill, ringroad, run, skip, until};
use rustix::process::Signal;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// `s` with files in it and in a directory.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("s/in")).unwrap();
    for (nth, name) in ["a", "b", "in/c"].iter().enumerate() {
        fs::write(folder.path().join("s").join(name), noise(1000, nth as u64)).unwrap();
    }
    folder
}

#[test]
fn resume_goes_on_in_the_directory_of_the_interrupted_copy_and_not_below_it() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    // As an interruption leaves it: some of the entries.
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/a"), "torn").unwrap();
    let outcome = run(ringroad(["cp", "-a", "--resume", "s", "d"]).current_dir(folder.path()));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stderr.contains("interrupted copy of s"), "{outcome:?}");
    assert!(!at("d/s").exists());
    assert_eq!(differences(&at("s"), &at("d"), CONTENTS), [""; 0]);
    // What is no copy of it is a directory to copy into, as without the option. That is said, too.
    fs::create_dir(at("other")).unwrap();
    fs::write(at("other/mine"), "").unwrap();
    let resume = |words: &[&str]| {
        run(ringroad(["cp", "-a", "--resume"].iter().chain(words)).current_dir(folder.path()))
    };
    let outcome = resume(&["s", "other"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stderr.contains("other is no interrupted copy of s: copying to other/s"), "{outcome:?}");
    assert_eq!(differences(&at("s"), &at("other/s"), CONTENTS), [""; 0]);
    // The copy in it has begun, so there is no question the next time.
    let outcome = resume(&["s", "other"]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    assert!(!at("other/s/s").exists());
}

#[test]
fn resume_refuses_a_directory_that_may_be_the_copy_or_a_place_for_it() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/a"), "torn").unwrap();
    fs::write(at("d/mine"), "").unwrap();
    let resume = |words: &[&str]| {
        run(ringroad(["cp", "-a", "--resume"].iter().chain(words)).current_dir(folder.path()))
    };
    let outcome = resume(&["s", "d"]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.stderr.contains("add -T to go on in 'd', or give -t 'd' to copy into it"), "{outcome:?}");
    assert_eq!((fs::read(at("d/a")).unwrap(), at("d/s").exists()), (b"torn".to_vec(), false));
    assert_eq!(resume(&["-T", "s", "d"]).code, Some(0));
    assert!(fs::read(at("s/a")).unwrap() == fs::read(at("d/a")).unwrap() && !at("d/s").exists());
    assert_eq!(resume(&["-t", "d", "s"]).code, Some(0));
    assert_eq!(differences(&at("s"), &at("d/s"), CONTENTS), [""; 0]);
}

#[test]
fn an_interrupted_copy_prints_the_line_that_goes_on_with_it() {
    let folder = folder();
    let fifo = folder.path().join("s/z");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
    let mut copy = ringroad(["cp", "-r", "--copy-contents", "s", "d"]);
    let mut child = Kill(copy.current_dir(folder.path()).stderr(Stdio::piped()).spawn().unwrap());
    let writer = writer_of(&fifo);
    child.signal(Signal::TERM);
    assert_eq!(child.wait(), Some(130));
    drop(writer);
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.0.stderr.take().unwrap(), &mut said).unwrap();
    let line = said.lines().find_map(|line| line.split_once("to go on: ").map(|(_, line)| line.to_string()));
    assert_eq!(line.as_deref(), Some("ringroad cp --resume -T -r --copy-contents s d"), "{said}");
    fs::remove_file(&fifo).unwrap();
    let words: Vec<String> = line.unwrap().split(' ').skip(1).map(str::to_string).collect();
    assert_eq!(run(ringroad(words).current_dir(folder.path())).code, Some(0));
    assert_eq!(differences(&folder.path().join("s"), &folder.path().join("d"), CONTENTS), [""; 0]);
}

#[test]
fn a_dry_run_names_what_would_be_copied_and_changes_nothing() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("d/s")).unwrap();
    fs::write(at("d/s/a"), "old").unwrap();
    let dry = |words: &[&str]| run(ringroad(["cp", "--dry-run"]).args(words).current_dir(folder.path()));
    let outcome = dry(&["-a", "--manifest", "list", "s", "d"]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    let text = outcome.text();
    let lines: Vec<&str> = text.lines().collect();
    let last = "dry run: 3 files and 2 directories, 2.93 KiB, would be copied";
    let expected = ["s/a -> d/s/a (replaces)", "s/b -> d/s/b", "s/in -> d/s/in", "s/in/c -> d/s/in/c", last];
    assert_eq!(lines, expected);
    assert_eq!(fs::read_to_string(at("d/s/a")).unwrap(), "old");
    assert!(!at("d/s/b").exists() && !at("d/s/in").exists() && !at("list").exists());
    // The same rules, and the same errors.
    assert!(dry(&["-an", "s", "d"]).text().ends_with("would be copied, 1 skipped\n"));
    let outcome = dry(&["s", "missing", "d"]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("not recursive") && outcome.stderr.contains("missing"), "{outcome:?}");
    assert!(dry(&["-a", "s", "s/in"]).stderr.contains("into itself"));
}

/// Open descriptors, links and mounts of the old file see the new contents, as with GNU cp.
#[test]
fn an_existing_file_is_overwritten_in_place_unless_atomic_is_asked_for() {
    use std::os::unix::fs::MetadataExt;
    for called_cp in [true, false] {
        for atomic in [false, true] {
            let folder = folder();
            let target = folder.path().join("old");
            fs::write(&target, "old contents").unwrap();
            let before = target.metadata().unwrap().ino();
            let mut copy = Command::new(BINARY);
            if called_cp {
                copy.arg0("cp");
            } else {
                copy.arg("cp");
            }
            copy.args(atomic.then_some("--atomic")).args(["s/a", "old"]).current_dir(folder.path());
            assert_eq!(run(&mut copy).code, Some(0));
            let kept = target.metadata().unwrap().ino() == before;
            assert_eq!(kept, !atomic, "called cp: {called_cp}, atomic: {atomic}");
            assert_eq!(fs::read(&target).unwrap(), fs::read(folder.path().join("s/a")).unwrap());
        }
    }
}

/// The thread that waits for the file sleeps so that only SIGKILL wakes it.
#[test]
fn a_copy_from_a_file_system_that_hangs_ends_by_a_signal() {
    let Some(fuse) = Fuse::mount(Faults::default()) else { return };
    fs::create_dir(fuse.mounted.join("s")).unwrap();
    put(&fuse, "s/hangs", &noise(100_000, 1));
    fuse.set(Faults { hang: Some("hangs"), ..Faults::default() });
    let mut engines = vec!["threads"];
    engines.extend(super::engines().iter().filter(|engine| **engine != "threads"));
    for engine in engines {
        for signal in [Signal::INT, Signal::TERM] {
            for called_cp in [false, true] {
                let folder = tempfile::tempdir().unwrap();
                let mut copy = Command::new(BINARY);
                if called_cp {
                    copy.arg0("cp");
                } else {
                    copy.arg("cp");
                }
                copy.args(["-r", "--reflink=never", "--engine", engine]);
                copy.arg(fuse.mounted.join("s")).arg(folder.path().join("d"));
                let mut child = Kill(copy.stderr(Stdio::null()).spawn().unwrap());
                if ringroad_host::process::ignores(signal.as_raw()) {
                    skip("a hung source", "the signal is ignored here");
                    continue;
                }
                // Reading the command line asks for the source too, before there is a handler.
                until("the copy waits for the file", || {
                    handles(child.0.id(), signal) && is_stuck(child.0.id())
                });
                child.signal(signal);
                let ended = child.status();
                if called_cp {
                    assert_eq!(ended.signal(), Some(signal.as_raw()), "{engine}");
                } else {
                    assert_eq!(ended.code(), Some(130), "{engine}");
                }
            }
        }
    }
}

/// Whether a process has a handler for a signal.
fn handles(process: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal.as_raw() - 1) & 1 == 1
}

/// Whether a thread of a process, or a kernel worker for it, sleeps for the hung file.
fn is_stuck(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return false };
    threads.flatten().any(|thread| {
        let place = fs::read_to_string(thread.path().join("wchan")).unwrap_or_default();
        place.contains("folio_wait") || place.contains("fuse") || place.contains("request_wait")
    })
}

/// A few MB of address space are enough for plain calls, and not for a ring's buffers. A ring that was named
/// is refused.
#[test]
fn where_memory_is_limited_rings_give_way_to_plain_calls() {
    let limited = |kilobytes: u32, words: &str, folder: &Path| {
        // What too little ends leaves no core file.
        let script = format!("ulimit -c 0; ulimit -v {kilobytes}; exec \"$0\" {words}");
        run(Command::new("sh").args(["-c", &script, BINARY]).current_dir(folder))
    };
    let run_with = |engine: &str, kilobytes: u32| {
        let folder = folder();
        let outcome = limited(kilobytes, &format!("cp -r --engine {engine} s d"), folder.path());
        (folder, outcome)
    };
    // How much the program itself needs depends on how it was built. Where it only just starts, any
    // allocation may be the one that ends it.
    let starts = |kilobytes: &u32| limited(*kilobytes, "--version", Path::new("/")).code == Some(0);
    let least = (10_000..400_000).step_by(2_000).find(starts).expect("400 MB are enough to start");
    // In small steps: what is left for a thread has steps too.
    for kilobytes in (least + 4_000..least + 24_000).step_by(500).chain([least + 36_000, least + 48_000]) {
        for engine in super::engines() {
            let (folder, outcome) = run_with(engine, kilobytes);
            assert!(!outcome.stderr.contains("bytes failed"), "{engine}, {kilobytes}: {outcome:?}");
            // A ring that was asked for by name is refused where it would leave too little.
            if outcome.code != Some(0) {
                assert!(matches!(outcome.code, Some(1 | 2)), "{engine}, {kilobytes}: {outcome:?}");
                assert!(!matches!(*engine, "auto" | "threads"), "{kilobytes}: {outcome:?}");
                continue;
            }
            let (source, copy) = (folder.path().join("s"), folder.path().join("d"));
            assert_eq!(differences(&source, &copy, CONTENTS), [""; 0]);
        }
    }
}
