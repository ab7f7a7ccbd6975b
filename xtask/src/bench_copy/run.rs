//! One run of one contestant: the state it finds, the clock around it, and what it cost.
//!
//! Hosts of virtual machines take free memory back, so the first touch of a page can cost a hundred times a
//! later one: before each run everything is written out, caches are dropped, for a warm run the source is
//! read, and memory for the run is touched. Dropping caches drops programs too, and loading one from a disk
//! can take longer than copying a thousand files: so each is read and run once, on one file in memory.
//! Nothing of that is timed. Targets are new each time and stay (`place.rs` says why).

use nix::sys::resource::{UsageWho, getrusage};
use ringroad_host::{cpu, syscalls};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The reason for a contestant that is not on this machine.
pub(super) const NOT_INSTALLED: &str = "not installed";

/// Threads that read a source back, or remove what was copied.
const READERS: usize = 16;

/// What all contestants of a cell have in common.
#[derive(Debug)]
pub(super) struct Cell<'a> {
    pub(super) ringroad: &'a Path,
    pub(super) source: &'a Path,
    pub(super) target: &'a Path,
    pub(super) cold: bool,
    /// The target is synced within the timed part.
    pub(super) sync: bool,
    /// Memory a copy will take.
    pub(super) bytes: u64,
}

/// What one run cost.
#[derive(Debug)]
pub(super) struct One {
    pub(super) seconds: f64,
    /// User and system time of the program and all it started, kernel workers of rings included.
    pub(super) cpu_s: f64,
    /// The most memory its processes held, each at its own peak.
    pub(super) peak_bytes: u64,
    /// Time the host gave to other guests.
    pub(super) steal_share: Option<f64>,
}

/// The words of a contestant with the paths of this cell in place.
pub(super) fn command(words: &[&str], cell: &Cell<'_>) -> Vec<String> {
    let paths = [("SOURCE", cell.source), ("TARGET", cell.target), ("RINGROAD", cell.ringroad)];
    let place = |word: &&str| {
        let fill = |text: String, (name, path): &(&str, &Path)| text.replace(name, &path.to_string_lossy());
        paths.iter().fold(word.to_string(), fill)
    };
    words.iter().map(place).collect()
}

/// Whether the program of a command can be found.
pub(super) fn installed(command: &[&str]) -> bool {
    command.first().is_some_and(|program| *program == "RINGROAD" || found(program).is_some())
}

/// The file of a program.
fn found(program: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&folders).map(|folder| folder.join(program));
    files.find(|file| file.is_file())
}

fn start(words: &[String]) -> io::Result<Child> {
    let (program, arguments) = words.split_first().ok_or(io::Error::other("an empty command"))?;
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
}

/// Removes a tree if it is there.
pub(super) fn remove(tree: &Path) -> io::Result<()> {
    match fs::remove_dir_all(tree) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes trees, several at a time.
pub(super) fn remove_all(trees: Vec<PathBuf>) -> io::Result<()> {
    let trees = Mutex::new(trees);
    let next = || trees.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let work = || std::iter::from_fn(next).try_for_each(|tree| remove(&tree));
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..READERS).map(|_| scope.spawn(work)).collect();
        let mine = work();
        let theirs = others.into_iter().map(|other| other.join().unwrap_or(Ok(())));
        theirs.fold(mine, Result::and)
    })
}

/// The same state for every contestant.
fn prepare(words: &[&str], cell: &Cell<'_>) -> io::Result<()> {
    rustix::fs::sync();
    if rustix::process::geteuid().is_root() {
        fs::write("/proc/sys/vm/drop_caches", "3")?;
    }
    if !cell.cold {
        read_back(cell.source)?;
    }
    touch_memory(memory_taken(cell));
    rehearse(words, cell)
}

/// What a run fills from now on: the pages of the copy, of a source that is not there yet, and those of an
/// image that either lies in. What is read before the run must not use up what was touched for it: so it
/// comes first.
fn memory_taken(cell: &Cell<'_>) -> u64 {
    let trees = if cell.cold { 2 } else { 1 };
    2 * trees * cell.bytes + (512 << 20)
}

/// Has a program loaded, with all it needs. Whether it can copy is the timed run's business.
fn rehearse(words: &[&str], cell: &Cell<'_>) -> io::Result<()> {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
    let (source, target) = (folder.path().join("source"), folder.path().join("target"));
    fs::create_dir(&source)?;
    fs::write(source.join("file"), "one")?;
    let words = command(words, &Cell { source: &source, target: &target, ..*cell });
    // All of it: what one file does not need, many may.
    if let Some(mut program) = words.first().and_then(|word| found(word)).map(fs::File::open).transpose()? {
        io::copy(&mut program, &mut io::sink())?;
    }
    start(&words)?.wait_with_output().map(drop)
}

/// Makes the host give memory to this machine before the clock runs, but no more than half of what is free.
fn touch_memory(bytes: u64) {
    let free = ringroad_host::facts::facts().memory_available_bytes.unwrap_or(0);
    let wanted = bytes.min(free / 2);
    let Ok(wanted) = usize::try_from(wanted) else { return };
    let mut memory: Vec<u8> = Vec::new();
    if memory.try_reserve_exact(wanted).is_ok() {
        memory.resize(wanted, 1);
        std::hint::black_box(&memory);
    }
}

/// Reads every file and attribute of a tree once, many at a time, since most of it comes from the disk.
fn read_back(tree: &Path) -> io::Result<()> {
    let mut files = Vec::new();
    let mut folders = vec![tree.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            match entry.file_type()? {
                kind if kind.is_dir() => folders.push(entry.path()),
                kind if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    let read = |files: &[PathBuf]| {
        let mut buffer = vec![0; 1 << 17];
        files.iter().try_for_each(|path| {
            let mut file = fs::File::open(path)?;
            file.metadata()?;
            while file.read(&mut buffer)? > 0 {}
            Ok(())
        })
    };
    std::thread::scope(|scope| {
        let shares = files.chunks(files.len().div_ceil(READERS).max(1));
        let readers: Vec<_> = shares.map(|share| scope.spawn(move || read(share))).collect();
        let ends = readers.into_iter().map(|reader| reader.join().unwrap_or(Ok(())));
        ends.fold(Ok(()), Result::and)
    })
}

/// One timed run. The inner error is the contestant's: it failed, or did not copy everything.
pub(super) fn timed(words: &[&str], cell: &Cell<'_>, check: bool) -> io::Result<Result<One, String>> {
    prepare(words, cell)?;
    let words = command(words, cell);
    let machine = cpu::machine()?;
    let before = children_cpu()?;
    let begun = Instant::now();
    let mut child = start(&words)?;
    let errors = child.stderr.take();
    let said = std::thread::spawn(move || first_line(errors));
    let (status, peak_bytes) = wait_watching(&mut child)?;
    if cell.sync && status.success() {
        let root = fs::File::open(cell.target)?;
        rustix::fs::syncfs(&root)?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let cpu_s = (children_cpu()? - before).as_secs_f64();
    let steal_share = cpu::machine()?.steal_share_since(&machine);
    if !status.success() {
        return Ok(Err(format!("{status}: {}", said.join().unwrap_or_default())));
    }
    if check {
        let (source, target) = (contents(cell.source)?, contents(cell.target)?);
        if source != target {
            return Ok(Err(format!("copied {target:?} (files, bytes), not {source:?}")));
        }
    }
    Ok(Ok(One { seconds, cpu_s, peak_bytes, steal_share }))
}

/// The first line that a program prints. It is read to its end: a full pipe would stop the program.
fn first_line(errors: Option<ChildStderr>) -> String {
    let mut line = Vec::new();
    if let Some(mut errors) = errors.map(BufReader::new)
        && errors.read_until(b'\n', &mut line).is_ok()
    {
        let _ = io::copy(&mut errors, &mut io::sink());
    }
    String::from_utf8_lossy(&line).trim_end().to_string()
}

/// How many regular files by any name, and bytes in them.
pub(super) fn contents(tree: &Path) -> io::Result<(u64, u64)> {
    let (mut files, mut bytes) = (0, 0);
    let mut folders = vec![tree.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let about = entry.metadata()?;
            if about.is_dir() {
                folders.push(entry.path());
            } else if about.is_file() {
                files += 1;
                bytes += about.len();
            }
        }
    }
    Ok((files, bytes))
}

/// CPU time of all children that have ended and were waited for, and of theirs.
fn children_cpu() -> io::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let of = |time: nix::sys::time::TimeVal| {
        Duration::from_secs(time.tv_sec().unsigned_abs())
            + Duration::from_micros(time.tv_usec().unsigned_abs())
    };
    Ok(of(usage.user_time()) + of(usage.system_time()))
}

/// Waits for a child, looking now and then how much memory it and its children hold at most.
pub(super) fn wait_watching(child: &mut Child) -> io::Result<(std::process::ExitStatus, u64)> {
    let pid = child.id();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut peaks = std::collections::HashMap::new();
            while !over.load(Ordering::Relaxed) {
                for process in family(pid) {
                    let known = peaks.entry(process).or_insert(0);
                    *known = peak(process).unwrap_or(0).max(*known);
                }
                // The peak only rises: looking rarely misses the last moments, not the height before them.
                std::thread::sleep(Duration::from_millis(10));
            }
            peaks.values().sum::<u64>()
        });
        let status = child.wait();
        over.store(true, Ordering::Relaxed);
        let peak = watcher.join().unwrap_or(0);
        status.map(|status| (status, peak))
    })
}

/// The most memory a process ever had resident (VmHWM).
fn peak(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// A process and its children.
fn family(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    std::iter::once(pid).chain(children.split_whitespace().filter_map(|pid| pid.parse().ok())).collect()
}

/// System calls of one more run, counted by the kernel; `None` where it does not let us.
pub(super) fn syscalls(words: &[&str], cell: &Cell<'_>) -> io::Result<Option<u64>> {
    prepare(words, cell)?;
    let words = command(words, cell);
    // A shell that waits for a line, so that the counter is there before the program is.
    let mut shell = Command::new("sh");
    shell.args(["-c", "read line; exec \"$@\"", "sh"]).args(&words);
    let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let counter = syscalls::Counter::attach(child.id());
    if let Some(mut line) = child.stdin.take() {
        line.write_all(b"go\n")?;
    }
    let status = child.wait()?;
    Ok(counter.ok().filter(|_| status.success()).and_then(|counter| counter.read().ok()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    struct Here {
        folder: tempfile::TempDir,
        source: PathBuf,
        target: PathBuf,
    }

    fn here() -> Here {
        let folder = tempfile::tempdir().unwrap();
        let (source, target) = (folder.path().join("s"), folder.path().join("t"));
        fs::create_dir(&source).unwrap();
        fs::write(source.join("a"), "alpha").unwrap();
        Here { folder, source, target }
    }

    impl Here {
        fn cell(&self) -> Cell<'_> {
            Cell {
                ringroad: Path::new("ringroad"),
                source: &self.source,
                target: &self.target,
                cold: true,
                sync: true,
                bytes: 1 << 20,
            }
        }
    }

    #[test]
    fn a_run_is_timed_and_its_memory_and_cpu_are_known() {
        let here = here();
        let one = timed(&["cp", "-r", "SOURCE", "TARGET"], &here.cell(), true).unwrap().unwrap();
        assert!(one.seconds > 0.0 && one.cpu_s >= 0.0, "{one:?}");
        assert!(here.folder.path().join("t/a").is_file());
    }

    #[test]
    fn a_run_whose_source_is_not_cached_is_given_memory_for_it_too() {
        let here = here();
        let run = |cold| memory_taken(&Cell { cold, bytes: 1000, ..here.cell() });
        assert_eq!(run(true) - run(false), 2000);
    }

    #[test]
    fn a_contestant_that_fails_or_leaves_something_out_is_told() {
        let here = here();
        let failed = timed(&["sh", "-c", "echo why >&2; exit 3"], &here.cell(), true).unwrap().unwrap_err();
        assert!(failed.contains('3') && failed.contains("why"), "{failed}");
        let much = ["timeout", "20", "sh", "-c", "echo why >&2; yes | head -c 300000 >&2; exit 3"];
        let failed = timed(&much, &here.cell(), true).unwrap().unwrap_err();
        assert!(failed.contains('3') && failed.ends_with(": why"), "more than a pipe holds: {failed}");
        let short = timed(&["mkdir", "TARGET"], &here.cell(), true).unwrap().unwrap_err();
        assert!(short.contains("(0, 0)") && short.contains("(1, 5)"), "{short}");
    }

    #[test]
    fn paths_are_put_where_their_names_stand() {
        let here = here();
        let words = command(&["RINGROAD", "x SOURCE/"], &here.cell());
        assert_eq!(words, ["ringroad".to_string(), format!("x {}/", here.source.display())]);
        assert!(installed(&["sh"]) && !installed(&["no such program"]));
    }
}
