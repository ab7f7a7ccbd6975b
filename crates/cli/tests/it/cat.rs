//! `ringroad cat` against the files themselves: every byte, in order, whatever the source, the driver and the
//! settings; and what is said, and what goes on, when something cannot be read or written.

use crate::fifo::writer_of;
use crate::support::{
    DEADLINE, Kill, Outcome, installed, is_root, own_copy, ringroad, run, run_with_input, skip,
};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// A block, as the defaults have it.
const BLOCK: usize = 128 << 10;

/// The ways to read that work on this machine; each must give the same bytes.
fn drivers() -> &'static [&'static str] {
    static DRIVERS: OnceLock<&[&str]> = OnceLock::new();
    DRIVERS.get_or_init(|| {
        let probe = run(&mut ringroad(["cat", "--driver", "io_uring", "/dev/null"]));
        if probe.code == Some(0) {
            return &["io_uring", "threads"];
        }
        skip("cat through io_uring", probe.stderr.trim());
        &["threads"]
    })
}

/// `ringroad cat` with a driver and more arguments.
fn cat<S: AsRef<OsStr>>(driver: &str, arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = ringroad(["cat", "--driver", driver]);
    command.args(arguments);
    command
}

/// Bytes that look like nothing and are the same for the same seed (xorshift64*).
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes()
    });
    let mut bytes: Vec<u8> = words.take(length.div_ceil(8)).flatten().collect();
    bytes.truncate(length);
    bytes
}

/// A folder of this test, gone with it.
fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn file(folder: &TempDir, name: impl AsRef<Path>, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// Everything was printed and nothing was said.
fn printed(outcome: &Outcome, expected: &[u8], context: &str) {
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{context}");
    same(&outcome.stdout, expected, context);
}

/// Equal bytes; a difference is told by its place, not by megabytes of numbers.
fn same(got: &[u8], expected: &[u8], context: &str) {
    if got != expected {
        let place = got.iter().zip(expected).position(|(a, b)| a != b);
        panic!("{context}: {} bytes instead of {}, first difference at {place:?}", got.len(), expected.len());
    }
}

#[test]
fn files_of_awkward_sizes_come_out_byte_for_byte() {
    let folder = folder();
    for (seed, size) in
        [0, 1, BLOCK - 1024, BLOCK - 1, BLOCK, BLOCK + 1, 16 * BLOCK + 1, 40 << 20].iter().enumerate()
    {
        let bytes = noise(*size, seed as u64);
        let path = file(&folder, "file", &bytes);
        for driver in drivers() {
            printed(&run(&mut cat(driver, [&path])), &bytes, &format!("{size} bytes through {driver}"));
        }
    }
}

#[test]
fn output_into_a_file_is_the_same() {
    let folder = folder();
    let bytes = noise(3 * BLOCK + 17, 5);
    let path = file(&folder, "in", &bytes);
    for driver in drivers() {
        let target = folder.path().join("out");
        let out = File::create(&target).unwrap();
        let status = cat(driver, [&path]).stdout(out).status().unwrap();
        assert!(status.success(), "{driver}");
        same(&fs::read(&target).unwrap(), &bytes, driver);
    }
}

#[test]
fn several_files_follow_each_other_and_one_may_come_twice() {
    let folder = folder();
    let (a, b, c) = (noise(BLOCK + 5, 1), noise(10, 2), noise(5 * BLOCK, 3));
    let (pa, pb, pc, empty) =
        (file(&folder, "a", &a), file(&folder, "b", &b), file(&folder, "c", &c), file(&folder, "empty", b""));
    for driver in drivers() {
        let outcome = run(&mut cat(driver, [&pb, &pa, &empty, &pb, &pc, &pb]));
        printed(&outcome, &[&b[..], &a, &b, &c, &b].concat(), driver);
    }
}

#[test]
fn standard_input_is_read_from_a_pipe_without_a_name_or_as_a_dash() {
    let folder = folder();
    let bytes = noise(5 * BLOCK + 3, 7);
    let other = file(&folder, "other", b"<other>");
    let other = other.as_os_str();
    for driver in drivers() {
        printed(&run_with_input(&mut cat::<&str>(driver, []), &bytes), &bytes, driver);
        printed(&run_with_input(&mut cat(driver, ["-"]), &bytes), &bytes, driver);
        let between = run_with_input(&mut cat(driver, [other, OsStr::new("-"), other]), &bytes);
        printed(&between, &[b"<other>", &bytes[..], b"<other>"].concat(), driver);
        // The second dash finds the end.
        printed(&run_with_input(&mut cat(driver, ["-", "-"]), &bytes), &bytes, driver);
    }
}

/// `(read a line; ringroad cat) < file` prints the rest.
#[test]
fn standard_input_that_is_a_file_begins_where_it_was_left() {
    let folder = folder();
    let bytes = noise(3 * BLOCK + 100, 8);
    let path = file(&folder, "file", &bytes);
    for driver in drivers() {
        for start in [0, 1, 4096, BLOCK + 7, bytes.len(), bytes.len() + 10] {
            let mut input = File::open(&path).unwrap();
            input.seek(SeekFrom::Start(start as u64)).unwrap();
            let outcome = run(cat::<&str>(driver, []).stdin(input.try_clone().unwrap()));
            printed(
                &outcome,
                bytes.get(start..).unwrap_or_default(),
                &format!("from {start} through {driver}"),
            );
            // And leaves it where it stopped reading, for the next reader.
            let end = input.stream_position().unwrap();
            assert_eq!(end, start.max(bytes.len()) as u64, "{driver}");
        }
    }
}

#[test]
fn a_fifo_is_read_to_its_end() {
    let folder = folder();
    let bytes = noise(4 * BLOCK + 9, 9);
    let fifo = folder.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    for driver in drivers() {
        std::thread::scope(|scope| {
            scope.spawn(|| writer_of(&fifo).write_all(&bytes));
            printed(&run(&mut cat(driver, [&fifo])), &bytes, driver);
        });
    }
}

/// They say that they are empty, and give what they have in pieces of any size.
#[test]
fn files_of_proc_are_read_whole_though_they_claim_to_be_empty() {
    for path in ["/proc/filesystems", "/proc/kallsyms"].map(Path::new) {
        let Ok(bytes) = fs::read(path) else {
            skip(&path.display().to_string(), "not there");
            continue;
        };
        for driver in drivers() {
            printed(&run(&mut cat(driver, [path])), &bytes, &format!("{} {driver}", path.display()));
        }
    }
}

#[test]
fn names_need_not_be_utf8_nor_free_of_newlines() {
    let folder = folder();
    let names =
        [OsString::from_vec(b"\xff\xfe name".to_vec()), OsString::from("line\nbreak"), OsString::from("-v")];
    for name in names {
        let path = file(&folder, &name, name.as_encoded_bytes());
        for driver in drivers() {
            printed(&run(&mut cat(driver, [&path])), name.as_encoded_bytes(), driver);
            let relative = run(cat(driver, [OsStr::new("--"), &name]).current_dir(folder.path()));
            printed(&relative, name.as_encoded_bytes(), driver);
        }
    }
}

/// A name from outside must not be able to forge a second line of ours, or to speak to the terminal.
#[test]
fn control_characters_of_a_name_are_escaped_in_messages() {
    let outcome = run(&mut cat("threads", ["no\nringroad: all is well\x1b[2J"]));
    assert_eq!(outcome.code, Some(1));
    assert_eq!(
        outcome.stderr,
        "ringroad: open, on no\\nringroad: all is well\\u{1b}[2J: No such file or directory\n"
    );
}

#[test]
fn what_cannot_be_read_is_said_and_the_rest_is_printed() {
    let folder = folder();
    let (first, last) = (file(&folder, "first", b"first\n"), file(&folder, "last", b"last\n"));
    // Opens, and answers EIO at offset 0: nothing is mapped there.
    let broken = Path::new("/proc/self/mem");
    let missing = folder.path().join("missing");
    let through_a_file = first.join("below");
    for driver in drivers() {
        let paths: [&Path; 6] = [&first, &missing, folder.path(), broken, &through_a_file, &last];
        let outcome = run(&mut cat(driver, paths));
        assert_eq!(outcome.text(), "first\nlast\n", "{driver}");
        assert_eq!(
            outcome.stderr.lines().collect::<Vec<_>>(),
            [
                format!("ringroad: open, on {}: No such file or directory", missing.display()),
                format!("ringroad: read, on {}: Is a directory", folder.path().display()),
                "ringroad: read at byte 0, on /proc/self/mem: Input/output error".to_string(),
                format!("ringroad: open, on {}: Not a directory", through_a_file.display()),
            ],
            "{driver}"
        );
        assert_eq!(outcome.code, Some(1), "{driver}");
    }
}

/// Run as root, permission bits do not apply; then the binary runs as an unprivileged user.
#[test]
fn a_file_without_permission_is_said_and_the_rest_is_printed() {
    let folder = folder();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (secret, open) = (file(&folder, "secret", b"secret"), file(&folder, "open", b"open"));
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let mut command = if is_root() {
        if !installed("setpriv") {
            return;
        }
        // Where the binary was built, that user may not be allowed to look.
        let copy = own_copy(folder.path());
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(copy).stdin(Stdio::null());
        command
    } else {
        ringroad::<&str>([])
    };
    let outcome = run(command.arg("cat").args([&secret, &open]).arg("-q"));
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert_eq!(outcome.text(), "open");
    assert_eq!(outcome.stderr, format!("ringroad: open, on {}: Permission denied\n", secret.display()));
}

/// A terminal that has lost its other side answers EIO after the bytes that were on their way.
#[test]
fn a_stream_that_fails_in_the_middle_is_printed_up_to_there() {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    for driver in drivers() {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let mut other_side = File::options().write(true).open(OsStr::new(name.to_str().unwrap())).unwrap();
        other_side.write_all(b"so far").unwrap();
        drop(other_side);
        let folder = folder();
        let next = file(&folder, "next", b", and on");
        let outcome = run(cat(driver, [Path::new("-"), &next]).stdin(terminal));
        assert_eq!(outcome.text(), "so far, and on", "{driver}");
        assert_eq!(
            outcome.stderr, "ringroad: read at byte 6, on standard input: Input/output error\n",
            "{driver}"
        );
        assert_eq!(outcome.code, Some(1), "{driver}");
    }
}

/// A block device with a backing file that was cut short under it: the reads side by side beyond the cut
/// fail, and everything before must come out first.
#[test]
fn a_device_that_fails_in_the_middle_is_printed_up_to_there() {
    let what = "a block device that fails in the middle";
    if !is_root() {
        return skip(what, "needs root for a loop device");
    }
    if !installed("losetup") {
        return;
    }
    let folder = folder();
    let (size, cut) = (8 << 20, 5 << 20);
    let bytes = noise(size, 11);
    let backing = file(&folder, "disk", &bytes);
    let attached = run(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(&backing));
    if attached.code != Some(0) {
        return skip(what, attached.stderr.trim());
    }
    let device = attached.text().trim().to_string();
    // Detached while it is open here, it goes with its last descriptor: also where this process is killed.
    let held = File::open(&device);
    let detached = run(Command::new("losetup").args(["--detach", &device]));
    assert_eq!(detached.code, Some(0), "{}", detached.stderr);
    let _held = held.unwrap();
    for driver in drivers() {
        printed(&run(&mut cat(driver, ["--direct", &device])), &bytes, &format!("whole, {driver}"));
    }
    File::options().write(true).open(&backing).unwrap().set_len(cut).unwrap();
    for driver in drivers() {
        let outcome = run(&mut cat(driver, ["--direct", &device]));
        assert_eq!(outcome.code, Some(1), "{driver}: {}", outcome.stderr);
        let expected = format!("ringroad: read at byte {cut}, on {device}: Input/output error\n");
        assert_eq!(outcome.stderr, expected, "{driver}");
        same(&outcome.stdout, &bytes[..cut as usize], driver);
    }
}

/// `ringroad cat big | head`: no reader is left to print for, and there is nothing to explain.
#[test]
fn output_that_is_closed_early_ends_quietly() {
    let folder = folder();
    let big = file(&folder, "big", &noise(8 << 20, 12));
    for driver in drivers() {
        let mut command = cat(driver, [&big, &big]);
        let mut child = Kill(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let mut begin = [0; 10];
        let mut stdout = child.0.stdout.take().unwrap();
        stdout.read_exact(&mut begin).unwrap();
        drop(stdout);
        let code = child.wait();
        let mut stderr = String::new();
        child.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!((code, stderr.as_str()), (Some(1), ""), "{driver}");
    }
}

#[test]
fn output_that_cannot_be_written_is_said_once() {
    let folder = folder();
    let path = file(&folder, "file", &noise(BLOCK, 13));
    for driver in drivers() {
        let mut command = cat(driver, [&path, &path]);
        let full = File::options().write(true).open("/dev/full").unwrap();
        let child = Kill(command.stdout(full).stderr(Stdio::piped()).spawn().unwrap());
        let (code, stderr) = ended(child);
        assert_eq!(stderr, "ringroad: write, on standard output: No space left on device\n", "{driver}");
        assert_eq!(code, Some(1), "{driver}");
    }
}

/// The exit code and stderr of a child with a stdout that is not ours.
fn ended(mut child: Kill) -> (Option<i32>, String) {
    let code = child.wait();
    let mut stderr = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    (code, stderr)
}

#[test]
fn a_file_that_is_also_the_output_is_refused_and_kept() {
    let folder = folder();
    let path = file(&folder, "file", b"what was there\n");
    let other = file(&folder, "other", b"other\n");
    let append = || File::options().append(true).open(&path).unwrap();
    let mut expected = fs::read(&path).unwrap();
    for driver in drivers() {
        // As an argument, as standard input, and between others, which are printed.
        let as_argument = cat(driver, [&path]).stdout(append()).stderr(Stdio::piped()).spawn().unwrap();
        let as_input = cat(driver, ["-"])
            .stdin(File::open(&path).unwrap())
            .stdout(append())
            .stderr(Stdio::piped())
            .spawn();
        for (child, name) in
            [(as_argument, path.display().to_string()), (as_input.unwrap(), "standard input".into())]
        {
            let (code, stderr) = ended(Kill(child));
            assert_eq!(code, Some(1), "{driver}");
            let why = "the output goes to the same file and would never end";
            assert_eq!(stderr, format!("ringroad: read, on {name}: {why}\n"), "{driver}");
        }
        let between = cat(driver, [&other, &path, &other]).stdout(append()).stderr(Stdio::piped()).spawn();
        assert_eq!(ended(Kill(between.unwrap())).0, Some(1), "{driver}");
        expected.extend_from_slice(b"other\nother\n");
        same(&fs::read(&path).unwrap(), &expected, driver);
    }
}

#[test]
fn direct_reads_give_the_same_bytes() {
    let folder = folder();
    for (seed, size) in [0, 1, 511, 4095, 4096, 4097, BLOCK + 1, 20 * BLOCK + 513].iter().enumerate() {
        let bytes = noise(*size, seed as u64);
        let path = file(&folder, "file", &bytes);
        for driver in drivers() {
            for block in ["4K", "128K", "1M"] {
                let outcome = run(cat(driver, [&path]).args(["--direct", "--block-size", block]));
                if outcome.stderr.contains("has no O_DIRECT") {
                    return skip("direct reads", outcome.stderr.trim());
                }
                printed(&outcome, &bytes, &format!("{size} bytes in blocks of {block} through {driver}"));
            }
        }
    }
}

#[test]
fn extreme_blocks_and_depths_give_the_same_bytes() {
    let folder = folder();
    let bytes = noise(3001, 14);
    let path = file(&folder, "file", &bytes);
    for driver in drivers() {
        for (block, depth) in
            [("1", "1"), ("1", "4096"), ("7", "3"), ("4096", "4096"), ("1024M", "1"), ("3000", "2")]
        {
            let outcome = run(cat(driver, [&path]).args(["--block-size", block, "--queue-depth", depth]));
            printed(&outcome, &bytes, &format!("blocks of {block}, {depth} in flight, {driver}"));
        }
    }
}

#[test]
fn settings_of_the_ring_give_the_same_bytes() {
    if !drivers().contains(&"io_uring") {
        return;
    }
    let folder = folder();
    let bytes = noise(5 * BLOCK + 1, 15);
    let path = file(&folder, "file", &bytes);
    for settings in ["sqpoll", "entries=1", "entries=64", "sqpoll,entries=2"] {
        printed(&run(cat("io_uring", [&path]).args(["--uring", settings])), &bytes, settings);
    }
    let told = run(cat("io_uring", [&path]).args(["-v", "--uring", "entries=64"]));
    assert!(told.stderr.contains("io_uring: 64 reads of 131072 bytes in flight"), "{}", told.stderr);
}

#[test]
fn settings_that_cannot_be_are_refused_before_anything_is_printed() {
    let folder = folder();
    let path = file(&folder, "file", b"bytes");
    for (arguments, named) in [
        (&["--block-size", "0"][..], "--block-size"),
        (&["--block-size", "2048M"], "--block-size"),
        (&["--block-size=-1"], "--block-size"),
        (&["--block-size", "4G"], "--block-size"),
        (&["--block-size", ""], "--block-size"),
        (&["--block-size", "\u{e9}"], "--block-size"),
        (&["--queue-depth", "0"], "--queue-depth"),
        (&["--queue-depth", "4097"], "--queue-depth"),
        (&["--queue-depth", "99999999999"], "--queue-depth"),
        (&["--block-size", "1024M", "--queue-depth", "5"], "at most 4 GiB"),
        (&["--direct", "--block-size", "1000"], "multiple of 4096"),
        (&["--uring", "entries=0"], "from 1 to 4096"),
        (&["--uring", "entries=many"], "from 1 to 4096"),
        (&["--uring", "turbo"], "turbo"),
    ] {
        let outcome = run(ringroad(["cat"]).arg(&path).args(arguments));
        assert_eq!(outcome.code, Some(2), "{arguments:?}: {outcome:?}");
        assert!(outcome.stderr.starts_with("ringroad: "), "{arguments:?}: {outcome:?}");
        assert!(outcome.stderr.contains(named), "{arguments:?}: {outcome:?}");
        assert!(outcome.stdout.is_empty(), "{arguments:?}: {outcome:?}");
    }
}

/// The file has eight times the bytes that the process may ever hold. After it comes standard input, which
/// does not end before the process was looked at.
#[test]
fn memory_does_not_grow_with_the_file() {
    let folder = folder();
    let size: u64 = 512 << 20;
    let path = file(&folder, "sparse", b"");
    File::options().write(true).open(&path).unwrap().set_len(size).unwrap();
    for driver in drivers() {
        let mut command = cat(driver, [path.as_path(), Path::new("-")]);
        let mut child = Kill(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        let stdin = child.0.stdin.take().unwrap();
        let mut stdout = child.0.stdout.take().unwrap();
        let bytes = io::copy(&mut (&mut stdout).take(size), &mut io::sink()).unwrap();
        assert_eq!(bytes, size, "{driver}");
        let status = fs::read_to_string(format!("/proc/{}/status", child.0.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(peak_kib < 64 << 10, "{driver}: {peak_kib} KiB resident at the peak");
        drop(stdin);
        let mut rest = Vec::new();
        stdout.read_to_end(&mut rest).unwrap();
        assert_eq!((child.wait(), rest.len()), (Some(0), 0), "{driver}");
    }
}

/// Standard input may have been made non-blocking by a process that shares it: a terminal, a socket, an event
/// loop.
#[test]
fn a_non_blocking_input_is_waited_for() {
    for driver in drivers() {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut command = cat::<&str>(driver, []);
        let mut child = Kill(
            command
                .stdin(OwnedFd::from(theirs))
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap(),
        );
        // Only the child may hold the other end now: the command would keep it open.
        drop(command);
        ours.write_all(b"one ").unwrap();
        let mut stdout = child.0.stdout.take().unwrap();
        let mut first = [0; 4];
        stdout.read_exact(&mut first).unwrap();
        // It has asked for more by now, or will: both must be right, so nothing is waited for here.
        ours.set_write_timeout(Some(DEADLINE)).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let sent = ours.write_all(b"two");
        drop(ours);
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        let (code, stderr) = ended(child);
        assert_eq!((rest.as_str(), stderr.as_str(), code), ("two", "", Some(0)), "{driver}: {sent:?}");
    }
}

/// Runs a command under a filter that answers `io_uring_setup` with `errno`, as container runtimes do.
pub(crate) fn without_io_uring(errno: i32, command: &mut Command) -> Outcome {
    denied(seccompiler::SeccompAction::Errno(errno as u32), command)
}

/// Runs a command under a filter that answers `io_uring_setup` so.
pub(crate) fn denied(answer: seccompiler::SeccompAction, command: &mut Command) -> Outcome {
    refused(libc::SYS_io_uring_setup, answer, command)
}

/// Runs a command under a filter that answers one call so.
pub(crate) fn refused(call: i64, answer: seccompiler::SeccompAction, command: &mut Command) -> Outcome {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    let filter = SeccompFilter::new(
        [(call, Vec::new())].into(),
        SeccompAction::Allow,
        answer,
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    // A filter holds for the thread that asked for it and what it starts; this thread ends here.
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                seccompiler::apply_filter(&program).unwrap();
                let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
                Outcome::from(child.wait_with_output().unwrap())
            })
            .join()
            .unwrap()
    })
}

#[test]
fn where_io_uring_is_denied_plain_reads_print_the_same_and_one_line_says_so() {
    if !drivers().contains(&"io_uring") {
        // Another filter is in force, and the stricter answer of two counts.
        return;
    }
    let folder = folder();
    let bytes = noise(3 * BLOCK + 1, 16);
    let path = file(&folder, "file", &bytes);
    for (errno, name) in
        [(libc::EPERM, "Operation not permitted"), (libc::ENOSYS, "Function not implemented")]
    {
        let outcome = without_io_uring(errno, ringroad(["cat"]).args([&path, &path]));
        same(&outcome.stdout, &[&bytes[..], &bytes].concat(), name);
        assert_eq!((outcome.code, outcome.stderr.lines().count()), (Some(0), 1), "{}", outcome.stderr);
        let line = outcome.stderr.trim_end();
        assert!(line.starts_with("ringroad: io_uring"), "{line}");
        assert!(line.ends_with(": using plain reads"), "{line}");
        assert!(line.contains(name), "{line}");

        let quiet = without_io_uring(errno, ringroad(["cat", "-q"]).arg(&path));
        printed(&quiet, &bytes, "quiet");
        let plain = without_io_uring(errno, &mut cat("threads", [&path]));
        printed(&plain, &bytes, "who asks for plain reads gets them without a word");

        let strict = without_io_uring(errno, &mut cat("io_uring", [&path]));
        assert_eq!((strict.code, strict.stdout.len()), (Some(2), 0), "{}", strict.stderr);
        assert!(strict.stderr.starts_with("ringroad: io_uring"), "{}", strict.stderr);
        assert!(strict.stderr.contains(name), "{}", strict.stderr);
    }
}
