//! A copy while it runs: what a terminal sees of it, and what a signal leaves behind.

use super::compare::{ALL, differences};
use super::engines;
use super::tree::noise;
use crate::cat::{denied, refused};
use crate::fifo::{await_input, reader_of, writer_of};
use crate::support::{BINARY, Kill, Lines, is_root, own_copy, ringroad, run, skip, until};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetwinsize, tcsetwinsize};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A folder with a FIFO, which makes a copier of it wait for the test.
fn with_fifo() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, rustix::fs::Mode::from_raw_mode(0o600), 0).unwrap();
    (folder, fifo)
}

/// The signal of Ctrl-C; where these tests were started with it ignored, as in a shell's background, one that
/// does the same.
fn interrupt() -> Signal {
    let ignored = ringroad_host::process::ignores(Signal::INT.as_raw());
    if ignored { Signal::TERM } else { Signal::INT }
}

/// A terminal: our end, and the end of the program.
fn terminal() -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
    let theirs = OpenOptions::new().read(true).write(true).open(path).unwrap();
    (File::from(ours), theirs)
}

#[test]
fn a_terminal_sees_files_bytes_and_rate_and_standard_output_nothing() {
    let (folder, fifo) = with_fifo();
    let (mut ours, theirs) = terminal();
    let mut copy = ringroad(["cp", "fifo", "out"]);
    copy.current_dir(folder.path()).stderr(theirs).stdout(Stdio::piped());
    let mut child = Kill(copy.spawn().unwrap());
    // The command holds the other end open; without it the terminal ends with the program.
    drop(copy);
    until_progress(&mut ours);
    writer_of(&fifo).write_all(b"contents").unwrap();
    assert_eq!(child.wait(), Some(0));
    let mut said = String::new();
    child.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(
        (said.as_str(), fs::read_to_string(folder.path().join("out")).unwrap().as_str()),
        ("", "contents")
    );
}

#[test]
fn the_summary_on_a_narrow_terminal_is_broken_only_where_a_line_is_full() {
    const COLUMNS: u16 = 40;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "contents").unwrap();
    let (mut ours, theirs) = terminal();
    let size = tcgetwinsize(&theirs).unwrap();
    tcsetwinsize(&theirs, Winsize { ws_col: COLUMNS, ws_row: 50, ..size }).unwrap();
    let mut copy = ringroad(["cp", "a", "b"]);
    copy.current_dir(folder.path()).stderr(theirs);
    let mut child = Kill(copy.spawn().unwrap());
    drop(copy);
    let mut said = Vec::new();
    // A terminal ends with an error when its other end is closed.
    let _ = ours.read_to_end(&mut said);
    assert_eq!(child.wait(), Some(0));
    let said = String::from_utf8(said).unwrap();
    let summary = &said[said.find("ringroad: cp: copied 1 file").unwrap()..];
    let lines: Vec<&str> = summary.lines().collect();
    assert!(lines.len() > 1 && summary.contains("files/s"), "{lines:?}");
    for pair in lines.windows(2) {
        let next = pair[1].split_whitespace().next().unwrap();
        let longer = pair[0].chars().count() + 1 + next.chars().count();
        assert!(longer > COLUMNS.into() && pair[0].chars().count() <= COLUMNS.into(), "{lines:?}");
    }
}

/// Where there is no terminal, and where the drop-in was called, a copy that takes its time says nothing. It
/// has the time in which one that began later, on a terminal, shows its progress.
#[test]
fn progress_is_for_terminals_and_not_for_the_drop_in() {
    let silent = [false, true].map(|called_cp| {
        let (folder, fifo) = with_fifo();
        let mut copy = Command::new(BINARY);
        let (ours, theirs) = terminal();
        if called_cp {
            copy.arg0("cp").stderr(theirs);
        } else {
            copy.arg("cp").stderr(Stdio::piped());
        }
        let child = Kill(copy.args(["fifo", "out"]).current_dir(folder.path()).spawn().unwrap());
        // Opened only when the copier has opened it: it is at work now.
        let writer = writer_of(&fifo);
        (called_cp, folder, ours, child, writer)
    });
    let (folder, _fifo) = with_fifo();
    let (mut shown, theirs) = terminal();
    let mut copy = ringroad(["cp", "fifo", "out"]);
    let _seen = Kill(copy.current_dir(folder.path()).stderr(theirs).spawn().unwrap());
    drop(copy);
    until_progress(&mut shown);
    for (called_cp, _folder, mut ours, mut child, mut writer) in silent {
        writer.write_all(b"contents").unwrap();
        drop(writer);
        assert_eq!(child.wait(), Some(0));
        let mut said = Vec::new();
        // A terminal ends with an error when its other end is closed.
        let _ = match child.0.stderr.take() {
            Some(mut pipe) => pipe.read_to_end(&mut said),
            None => ours.read_to_end(&mut said),
        };
        assert_eq!(String::from_utf8_lossy(&said), "", "called cp: {called_cp}");
    }
}

/// Reads what a terminal shows until a line of progress has been on it, and returns it.
fn until_progress(ours: &mut File) -> String {
    let mut seen = String::new();
    let mut bytes = [0; 4096];
    while !(seen.contains("files/s") && seen.contains("B/s")) {
        await_input(&*ours);
        let length = ours.read(&mut bytes).unwrap();
        seen.push_str(&String::from_utf8_lossy(&bytes[..length]));
    }
    seen
}

#[test]
fn events_of_progress_come_while_the_copy_runs() {
    let (folder, fifo) = with_fifo();
    let mut copy = ringroad(["cp", "--json", "fifo", "out"]);
    let mut child = Kill(copy.current_dir(folder.path()).stdout(Stdio::piped()).spawn().unwrap());
    let lines = Lines::of(child.0.stdout.take().unwrap());
    let event = |line: String| serde_json::from_str::<serde_json::Value>(&line).unwrap();
    let kinds: Vec<_> = (0..3).map(|_| event(lines.next().unwrap())["event"].clone()).collect();
    assert_eq!(kinds, ["start", "progress", "progress"]);
    writer_of(&fifo).write_all(b"contents").unwrap();
    assert_eq!(event(lines.rest().last().unwrap().clone())["event"], "done");
    assert_eq!(child.wait(), Some(0));
}

/// Big files, one after the other, stopped in the middle of one.
#[test]
fn an_interrupted_copy_leaves_whole_files_only_and_exits_130() {
    for engine in engines() {
        let folder = tempfile::tempdir().unwrap();
        let (source, target) = (folder.path().join("s"), folder.path().join("d"));
        fs::create_dir(&source).unwrap();
        let bytes = noise(32 << 20, 3);
        for nth in 0..6 {
            fs::write(source.join(format!("{nth}")), &bytes).unwrap();
        }
        let mut copy = ringroad(["cp", "-r", "--jobs", "1", "--reflink=never", "--engine", engine]);
        let mut child = Kill(copy.arg(&source).arg(&target).stderr(Stdio::piped()).spawn().unwrap());
        let begun = || fs::read_dir(&target).map_or(0, |entries| entries.count());
        until("the second file is begun", || begun() > 1);
        child.signal(interrupt());
        let code = child.wait();
        let mut said = String::new();
        child.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        // A machine that copies 192 MiB between two looks was not interrupted.
        if code == Some(0) {
            crate::support::skip(&format!("interrupting {engine}"), "it was done before the signal came");
            continue;
        }
        assert_eq!(code, Some(130), "{engine}: {said}");
        assert!(said.contains("interrupted"), "{engine}: {said}");
        for entry in fs::read_dir(&target).unwrap() {
            let path = entry.unwrap().path();
            assert!(fs::read(&path).unwrap() == bytes, "{engine}: {path:?} is torn");
        }
        let again = run(ringroad(["cp", "-rT", "--resume", "--engine", engine]).arg(&source).arg(&target));
        assert_eq!(again.code, Some(0), "{engine}: {again:?}");
        assert_eq!(begun(), 6, "{engine}");
    }
}

/// Until a directory has its owner, its group's bits apply to another group.
#[test]
fn a_directory_of_parents_is_its_owners_alone_until_the_copy_is_over() {
    let (folder, fifo) = with_fifo();
    let mode = |name: &str| folder.path().join(name).metadata().unwrap().permissions().mode() & 0o7777;
    for folder_name in ["s", "d"] {
        fs::create_dir(folder.path().join(folder_name)).unwrap();
    }
    fs::rename(&fifo, folder.path().join("s/fifo")).unwrap();
    fs::set_permissions(folder.path().join("s"), fs::Permissions::from_mode(0o750)).unwrap();
    let mut copy = ringroad(["cp", "-p", "--parents", "s/fifo", "d"]);
    let mut child = Kill(copy.current_dir(folder.path()).spawn().unwrap());
    // Opened only when the copier has opened it, and it made the directory before.
    let mut writer = writer_of(&folder.path().join("s/fifo"));
    assert_eq!(mode("d/s"), 0o700);
    writer.write_all(b"contents").unwrap();
    drop(writer);
    assert_eq!(child.wait(), Some(0));
    assert_eq!(mode("d/s"), 0o750);
}

/// While it is filled a directory is its owner's to fill, whatever the mask says, and so is what a stopped
/// copy leaves.
#[test]
fn what_is_stopped_under_a_mask_that_takes_the_owners_rights_is_gone_on_with() {
    if !is_root() {
        return skip(
            "a mask that takes the owner's rights",
            "needs root to become somebody whom it concerns",
        );
    }
    for mask in ["222", "777"] {
        for words in ["-r s", "-a s", "-r --parents s/e"] {
            let (folder, fifo) = with_fifo();
            let at = |name: &str| folder.path().join(name);
            let open = |name: &str| fs::set_permissions(at(name), PermissionsExt::from_mode(0o777)).unwrap();
            let mode = |name: &str| at(name).metadata().unwrap().permissions().mode() & 0o7777;
            fs::create_dir_all(at("s/e")).unwrap();
            fs::write(at("s/e/f"), "x").unwrap();
            ["", "fifo"].iter().for_each(|name| open(name));
            let program = own_copy(folder.path());
            let start = |to: &str| {
                fs::create_dir_all(at(to)).unwrap();
                open(to);
                let script = format!("umask {mask}; exec \"$0\" cp --resume --copy-contents {words} {to}");
                let mut shell = Command::new("sh");
                shell.args(["-c", &script]).arg(&program).current_dir(folder.path()).uid(65_534).gid(65_534);
                Kill(shell.stderr(Stdio::null()).spawn().unwrap())
            };
            assert_eq!(start("whole").wait(), Some(0), "{mask}: {words}");
            let waits = at("s/e/fifo");
            fs::rename(&fifo, &waits).unwrap();
            let mut stopped = start("d");
            // Opened only when the copier has opened it.
            let writer = writer_of(&waits);
            stopped.signal(Signal::TERM);
            assert_ne!(stopped.wait(), Some(0), "{mask}: {words}");
            drop(writer);
            for name in ["d/s", "d/s/e"] {
                assert_eq!(mode(name) & 0o700, 0o700, "{mask}: {words}: {name}");
            }
            fs::remove_file(&waits).unwrap();
            assert_eq!(start("d").wait(), Some(0), "{mask}: {words}");
            for name in ["s", "s/e", "s/e/f"] {
                let (found, wanted) = (mode(&format!("d/{name}")), mode(&format!("whole/{name}")));
                assert_eq!(found, wanted, "{mask}: {words}: {name}, {found:o} and not {wanted:o}");
            }
        }
    }
}

#[test]
fn the_drop_in_ends_by_the_signal_that_stopped_it() {
    let (folder, fifo) = with_fifo();
    let mut copy = Command::new(BINARY);
    copy.arg0("cp").args(["fifo", "out"]).current_dir(folder.path()).stdin(Stdio::null());
    let mut child = Kill(copy.spawn().unwrap());
    let mut writer = writer_of(&fifo);
    writer.write_all(b"half").unwrap();
    until("the copy is begun", || fs::read(folder.path().join("out")).is_ok_and(|bytes| bytes == b"half"));
    child.signal(Signal::TERM);
    assert_eq!(child.status().signal(), Some(Signal::TERM.as_raw()));
    assert!(!folder.path().join("out").exists(), "what was half-written is gone");
    // It ended although no further byte was written and this was not closed.
    drop(writer);
}

/// A pipe without a reader.
fn unread() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

/// `cp -v … | head`. GNU cp ends by SIGPIPE, unless its parent has that ignored. The verb's output is one of
/// several things that it was asked for, so it copies, and says that this one is missing.
#[test]
fn an_output_without_a_reader_ends_cp_by_its_signal_and_the_verb_with_an_error() {
    for (name, ignored) in [("cp", false), ("cp", true), ("ringroad", false)] {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(BINARY, folder.path().join(name)).unwrap();
        fs::write(folder.path().join("from"), "contents").unwrap();
        let verb = if name == "cp" { "" } else { "cp" };
        let trap = if ignored { "trap '' PIPE;" } else { "" };
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{trap} exec ./{name} {verb} -v from to")]);
        shell.current_dir(folder.path()).stdin(Stdio::null()).stdout(unread());
        let ended = shell.stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        let (said, context) =
            (String::from_utf8(ended.stderr).unwrap(), format!("{name}, ignored: {ignored}"));
        if name == "cp" && !ignored {
            assert_eq!(ended.status.signal(), Some(Signal::PIPE.as_raw()), "{context}: {said}");
            assert_eq!(said, "", "{context}");
        } else {
            assert_eq!(ended.status.code(), Some(1), "{context}: {said}");
            assert!(said.contains("write error: Broken pipe"), "{context}: {said}");
        }
        assert_eq!(fs::read(folder.path().join("to")).unwrap(), b"contents", "{context}");
    }
}

#[test]
fn help_that_is_read_in_part_is_no_error_of_the_verb() {
    for word in ["--help", "--version"] {
        let mut help = ringroad(["cp", word]);
        let ended = help.stdout(unread()).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]), "{word}");
    }
}

/// `cp -v … | head`, in the middle: the copy stops, and removes what is half-written.
#[test]
fn cp_stops_where_its_output_loses_its_reader_and_leaves_no_half_file() {
    let (folder, fifo) = with_fifo();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("out")).unwrap();
    // More lines than are kept before they are written.
    let names: Vec<_> = (0..200).map(|number| format!("{number}{}", "n".repeat(200))).collect();
    names.iter().for_each(|name| fs::write(at(name), "x").unwrap());
    let mut copy = Command::new(BINARY);
    copy.arg0("cp").args(["-v", "fifo"]).args(&names).arg("out").current_dir(folder.path());
    let mut child = Kill(copy.stdin(Stdio::null()).stdout(unread()).spawn().unwrap());
    drop(writer_of(&fifo));
    assert_eq!(child.status().signal(), Some(Signal::PIPE.as_raw()));
    assert!(!names.iter().all(|name| at("out").join(name).exists()), "it has gone on to the end");
    let whole = |entry: fs::DirEntry| entry.file_name() == "fifo" || entry.metadata().unwrap().len() == 1;
    assert!(fs::read_dir(at("out")).unwrap().all(|entry| whole(entry.unwrap())));
}

/// `cp file /dev/stdout | head`.
#[test]
fn a_target_that_loses_its_reader_ends_cp_by_its_signal() {
    for engine in engines() {
        let (folder, fifo) = with_fifo();
        fs::write(folder.path().join("from"), noise(1 << 20, 1)).unwrap();
        let mut copy = Command::new(BINARY);
        copy.arg0("cp").args(["--engine", engine, "from", "fifo"]).current_dir(folder.path());
        let mut child = Kill(copy.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
        let mut reader = reader_of(&fifo);
        reader.read_exact(&mut [0; 1]).unwrap();
        drop(reader);
        let status = child.status();
        assert_eq!(status.signal(), Some(Signal::PIPE.as_raw()), "{engine}: {status}");
        let mut said = String::new();
        child.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, "", "{engine}");
    }
}

/// `nohup` starts programs so, and a shell what it puts into the background.
#[test]
fn a_signal_that_is_ignored_when_the_copy_begins_stays_ignored() {
    for name in ["cp", "ringroad"] {
        for (trap, signal) in [("HUP", Signal::HUP), ("INT", Signal::INT), ("TERM", Signal::TERM)] {
            let (folder, fifo) = with_fifo();
            std::os::unix::fs::symlink(BINARY, folder.path().join(name)).unwrap();
            let verb = if name == "cp" { "" } else { "cp" };
            let script = format!("trap '' {trap}; exec ./{name} {verb} fifo out");
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]).current_dir(folder.path()).stdin(Stdio::null());
            let mut child = Kill(shell.spawn().unwrap());
            // Opened only when the copier has opened it: what it does about signals is done.
            let mut writer = writer_of(&fifo);
            // Said by the kernel: a handler takes its time, and the copy could be over first.
            let status = fs::read_to_string(format!("/proc/{}/status", child.0.id())).unwrap();
            let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
            let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
            assert!(ignored & (1 << (signal.as_raw() - 1)) != 0, "{name} under trap {trap}: {ignored:x}");
            child.signal(signal);
            writer.write_all(b"contents").unwrap();
            drop(writer);
            assert_eq!(child.wait(), Some(0), "{name} under trap {trap}");
            assert_eq!(fs::read_to_string(folder.path().join("out")).unwrap(), "contents", "{name} {trap}");
        }
    }
}

/// The FIFO has no writer, or a writer that does not write.
#[test]
fn a_copy_that_waits_for_a_fifo_is_interrupted_at_once_and_leaves_nothing() {
    for written in [None, Some(""), Some("half")] {
        let (folder, fifo) = with_fifo();
        let out = folder.path().join("out");
        let mut copy = ringroad(["cp", "--json", "fifo", "out"]);
        let mut child = Kill(copy.current_dir(folder.path()).stdout(Stdio::piped()).spawn().unwrap());
        let lines = Lines::of(child.0.stdout.take().unwrap());
        let event = |line: String| serde_json::from_str::<serde_json::Value>(&line).unwrap();
        assert_eq!(event(lines.next().unwrap())["event"], "start");
        let writer = written.map(|text| {
            // Opened only when the copier has it open.
            let mut writer = writer_of(&fifo);
            writer.write_all(text.as_bytes()).unwrap();
            writer
        });
        let begun = || fs::read(&out).is_ok_and(|bytes| bytes == b"half");
        until("what was written is copied", || written != Some("half") || begun());
        assert!(written == Some("half") || !out.exists(), "nothing is made before there is a byte");
        child.signal(interrupt());
        assert_eq!(child.wait(), Some(130), "{written:?}");
        let done = event(lines.rest().last().unwrap().clone());
        assert_eq!((done["event"].as_str(), done["exit_code"].as_u64()), (Some("done"), Some(130)));
        assert!(!out.exists(), "{written:?}");
        drop(writer);
    }
}

/// The writer may be gone before the copier looks: what it left is copied, and the end is seen.
#[test]
fn a_pipe_is_copied_to_its_end_whether_its_writer_is_still_there_or_not() {
    let folder = tempfile::tempdir().unwrap();
    for (nth, script) in [
        "printf abc | (sleep 0.2; \"$0\" cp /dev/stdin out)",
        "(printf ab; sleep 0.2; printf c) | \"$0\" cp /dev/stdin out",
        "mkfifo fifo; (printf ab; sleep 0.2; printf c) >fifo & \"$0\" cp fifo out",
        "printf abc >source; \"$0\" cp /dev/stdin out <source",
    ]
    .iter()
    .enumerate()
    {
        let outcome = run(Command::new("sh").args(["-c", script, BINARY]).current_dir(folder.path()));
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{script}");
        assert_eq!(fs::read_to_string(folder.path().join("out")).unwrap(), "abc", "{nth}: {script}");
        fs::remove_file(folder.path().join("out")).unwrap();
    }
}

/// Nothing is half-written while a question waits for its answer, and no answer is typed after Ctrl-C.
#[test]
fn an_interrupt_at_a_question_ends_the_program_and_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        fs::write(folder.path().join(name), name).unwrap();
    }
    let mut copy = ringroad(["cp", "-i", "a", "b"]);
    copy.current_dir(folder.path()).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Kill(copy.spawn().unwrap());
    let mut question = [0; 23];
    child.0.stderr.as_mut().unwrap().read_exact(&mut question).unwrap();
    assert_eq!(&question, b"ringroad: overwrite b? ");
    child.signal(interrupt());
    assert_eq!(child.wait(), Some(130));
    assert_eq!(fs::read_to_string(folder.path().join("b")).unwrap(), "b");
}

#[test]
fn where_io_uring_is_denied_auto_copies_and_says_why_and_a_named_ring_is_refused() {
    if !engines().contains(&"ring") {
        // Another filter is in force, and the stricter answer of two counts.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "alpha").unwrap();
    use seccompiler::SeccompAction::{Errno, KillProcess, Trap};
    for (answer, says) in [
        (Errno(libc::EPERM as u32), "Operation not permitted"),
        (Errno(libc::ENOSYS as u32), "Function not implemented"),
        (KillProcess, "ends a process"),
        (Trap, "ends a process"),
    ] {
        let denied = |words: &[&str]| {
            denied(answer.clone(), ringroad(["cp"]).args(words).args(["a", "b"]).current_dir(folder.path()))
        };
        let auto = denied(&["--json"]);
        assert_eq!((auto.code, auto.stderr.as_str()), (Some(0), ""), "{auto:?}");
        assert_eq!(fs::read_to_string(folder.path().join("b")).unwrap(), "alpha");
        fs::remove_file(folder.path().join("b")).unwrap();
        for words in [&["--engine", "ring"][..], &["--engine", "ring-splice"], &["--driver", "io_uring"]] {
            let refused = denied(words);
            assert_eq!(refused.code, Some(2), "{words:?}: {refused:?}");
            assert!(refused.stderr.starts_with("ringroad: engine ring"), "{words:?}: {refused:?}");
            assert!(refused.stderr.contains(says), "{words:?}: {refused:?}");
            assert!(refused.stderr.contains("seccomp filter"), "{words:?}: {refused:?}");
            assert!(!folder.path().join("b").exists(), "nothing was touched");
        }
    }
}

/// As GNU cp does with six. A process may inherit descriptors: those are closed.
#[test]
fn nine_descriptors_are_enough_for_a_tree_and_seven_for_files() {
    let folder = tempfile::tempdir().unwrap();
    let tree = "mkdir -p s/1/2/3/4 s/5/6; for i in $(seq 30); do echo $i >s/f$i; echo $i >s/1/2/3/f$i; echo $i >s/5/6/f$i; done
        ln -s f1 s/l; mkfifo s/5/p; touch -d @1000000000 s/1/2 s/5 s; mkdir d
        cp -a s hard; ln hard/f1 hard/1/2/3/4/h";
    let made = run(Command::new("sh").args(["-c", tree]).current_dir(folder.path()));
    assert_eq!(made.code, Some(0), "{made:?}");
    let copy = |limit: u32, words: &str| {
        let script =
            format!("exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit -n {limit}; exec \"$0\" cp {words}");
        run(Command::new("sh").args(["-c", &script, BINARY]).current_dir(folder.path()))
    };
    for (limit, words) in [
        (9, "-a s d/a"),
        (10, "-a s d/b"),
        (11, "-r s d/c"),
        (11, "-a hard d/h"),
        (13, "-a hard d/e"),
        (7, "s/f1 s/f2 d"),
    ] {
        let outcome = copy(limit, words);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{limit}: {words}");
    }
    for (source, name) in [("s", "a"), ("s", "b"), ("hard", "h"), ("hard", "e")] {
        let found = differences(&folder.path().join(source), &folder.path().join("d").join(name), ALL);
        assert_eq!(found, [""; 0], "{name}");
    }
    let few = copy(6, "s/f1 d/x");
    assert!(few.code == Some(1) && few.stderr.contains("raise `ulimit -n`"), "{few:?}");
}

/// Services that may use no sockets (`RestrictAddressFamilies=none` of systemd) get EAFNOSUPPORT, others
/// EPERM.
#[test]
fn where_no_pair_of_sockets_may_be_made_a_copy_goes_on_without_a_watch_for_signals() {
    for number in [1, 97] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "alpha").unwrap();
        let answer = seccompiler::SeccompAction::Errno(number);
        let mut copy = ringroad(["cp", "a", "b"]);
        let outcome = refused(libc::SYS_socketpair, answer, copy.current_dir(folder.path()));
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{number}");
        assert_eq!(fs::read_to_string(folder.path().join("b")).unwrap(), "alpha");
    }
}
