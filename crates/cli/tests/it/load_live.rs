//! `ringroad load` on a terminal: the picture, and what is left of it.

use crate::support::{Kill, Lines, Server, ringroad, run};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetwinsize, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Both ends of a terminal of this size: ours, and a program's.
fn terminal(columns: u16, rows: u16) -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
    let theirs = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let size: Winsize = tcgetwinsize(&theirs).unwrap();
    tcsetwinsize(&theirs, Winsize { ws_col: columns, ws_row: rows, ..size }).unwrap();
    (File::from(ours), theirs)
}

/// What a terminal shows after all this was written to it, line by line: the two codes that we send, and
/// nothing else.
fn shown(written: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut rest = written;
    while let Some(character) = rest.chars().next() {
        rest = &rest[character.len_utf8()..];
        match character {
            '\n' => lines.push(String::new()),
            '\r' => {}
            '\x1b' => {
                let end = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap();
                let (number, what) = (&rest[1..end], &rest[end..=end]);
                rest = &rest[end + 1..];
                match what {
                    "F" => lines.truncate(lines.len() - number.parse::<usize>().unwrap()),
                    "J" => lines.last_mut().unwrap().clear(),
                    "m" => {}
                    other => panic!("a code of no known meaning: {number}{other}"),
                }
            }
            other => lines.last_mut().unwrap().push(other),
        }
    }
    lines
}

/// All that a program writes to a terminal.
fn written(mut ours: File) -> String {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    // The end of a terminal without its program is an error.
    while let Ok(bytes @ 1..) = ours.read(&mut piece) {
        all.extend_from_slice(&piece[..bytes]);
    }
    String::from_utf8(all).unwrap()
}

#[test]
fn help_fits_a_narrow_terminal() {
    for columns in [40, 59, 60, 79] {
        for verb in [&["load"][..], &["lab"], &["serve"], &["cp"], &["doctor"]] {
            let (ours, theirs) = terminal(columns, 50);
            let mut command = ringroad(verb);
            command.arg("--help").env("TERM", "xterm").env_remove("COLUMNS").stdout(theirs);
            let mut process = Kill(command.spawn().unwrap());
            // The command holds our copy of the other end.
            drop(command);
            let lines = shown(&written(ours));
            assert!(process.0.wait().unwrap().success());
            assert!(lines.len() > 20, "{lines:?}");
            // Usage lines are commands, and a word stays whole.
            let is_prose = |line: &&String| {
                let line = line.trim_start();
                !["Usage", "ringroad", "or:", "-"].iter().any(|command| line.starts_with(command))
                    && line.contains(' ')
            };
            let long = lines.iter().filter(is_prose).find(|line| line.chars().count() > columns.into());
            assert_eq!(long, None, "{verb:?}, {columns} columns");
        }
    }
}

/// Writes this record beside itself, with another verdict; returns where.
fn with_verdict(file: &Path, level: &str) -> PathBuf {
    let mut record: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let reason = "the client was ready but waited for a CPU during 45.8 % of the window: stop other work.";
    let reasons: &[&str] = if level == "VALID" { &[] } else { &[reason] };
    let verdict = serde_json::json!({ "level": level, "reasons": reasons });
    record["cells"][0]["verdict"] = verdict.clone();
    record["verdict"] = verdict;
    let other = file.with_file_name(format!("{level}.json"));
    std::fs::write(&other, record.to_string()).unwrap();
    other
}

#[test]
fn what_is_printed_fits_a_narrow_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["--model", "epoll-et", "--protocol", "http"]);
    let url = format!("http://{}/", server.address);
    let kept = folder.path().join("ringroad/lab/a");
    std::fs::create_dir_all(&kept).unwrap();
    let file = kept.join("record.json");
    let mut load = ringroad(["load", &url, "-n", "20", "--out"]);
    // The verdict is about the machine too: one that is busy can make it INVALID, which is exit code 5.
    let loaded = run(load.arg(&file));
    assert!(matches!(loaded.code, Some(0 | 5)), "{loaded:?}");
    let records = ["VALID", "SUSPECT", "INVALID"].map(|level| with_verdict(&file, level));
    let [valid, suspect, invalid] = records.each_ref().map(|record| record.to_str().unwrap());
    std::fs::create_dir(folder.path().join("a tree")).unwrap();
    for columns in [40, 80] {
        for words in [
            &["load", &url, "-c", "2000000", "--driver", "epoll", "--plan"][..],
            &["load", "--calibrate"],
            &["doctor"],
            &["lab", "list"],
            &["lab", "compare", "--figure", "p99", valid, valid],
            &["lab", "compare", "--figure", "p99", valid, suspect],
            &["lab", "compare", suspect, invalid],
            // A line of two paths stays whole, and has the length of that of the folder if they are absolute.
            &["cp", "-r", "--dry-run", "a tree", "b"],
        ] {
            let (ours, theirs) = terminal(columns, 50);
            let mut command = ringroad(words);
            command.current_dir(folder.path()).stdout(theirs);
            command.env("TERM", "xterm").env("XDG_STATE_HOME", folder.path());
            let mut process = Kill(command.spawn().unwrap());
            // The command holds our copy of the other end.
            drop(command);
            let lines = shown(&written(ours));
            process.wait();
            assert!(lines.iter().any(|line| !line.is_empty()), "{words:?}: {lines:?}");
            // A path stays whole.
            let is_long = |line: &&String| line.chars().count() > columns.into() && line.trim().contains(' ');
            assert_eq!(lines.iter().find(is_long), None, "{words:?}, {columns} columns");
        }
    }
}

#[test]
fn on_a_terminal_there_is_a_picture_while_it_runs_and_its_last_state_afterwards() {
    let server = Server::start(&["--model", "epoll-et", "--protocol", "http"]);
    let (mut ours, theirs) = terminal(70, 20);
    let url = format!("http://{}/", server.address);
    let mut command = ringroad(["load", &url, "-c", "2", "-d", "1h", "--warmup", "0s"]);
    command.env_remove("NO_COLOR").env("TERM", "xterm").stdout(Stdio::piped()).stderr(theirs);
    let mut process = Kill(command.spawn().unwrap());
    // The command holds our copy of the other end.
    drop(command);
    let out = Lines::of(process.0.stdout.take().unwrap());
    let mut written = Vec::new();
    let mut interrupted = false;
    let mut buffer = [0; 4096];
    // At the end of the last holder the kernel says EIO.
    while let Ok(count @ 1..) = ours.read(&mut buffer) {
        written.extend_from_slice(&buffer[..count]);
        if !interrupted && String::from_utf8_lossy(&written).contains("0.25 s each") {
            interrupted = true;
            let picture = shown(&String::from_utf8_lossy(&written)).join("\n");
            assert!(picture.contains(&url) && picture.contains("2 connections, closed loop"), "{picture}");
            assert_eq!(picture.matches("rate │").count(), 1, "{picture}");
            assert!(picture.lines().all(|line| line.chars().count() < 70), "{picture}");
            process.signal(Signal::INT);
        }
    }
    assert!(interrupted, "{}", String::from_utf8_lossy(&written));
    assert_eq!(process.wait(), Some(130));
    let left = shown(&String::from_utf8(written).unwrap());
    assert_eq!(left[0], url, "the last picture stays");
    let left = left.join("\n");
    assert!(left.contains(" s, over") && left.matches("rate │").count() == 1, "{left}");
    assert!(out.rest().iter().any(|line| line.contains("requests")));
    server.stop(Signal::INT);
}
