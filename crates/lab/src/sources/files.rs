//! Copying trees of small files, on this machine's disk and on one made slow.
//!
//! `cp -r` and `ringroad cp -r` take turns in random order on a tree they have not in the cache. Nothing is
//! removed between runs: ext4 slows down what follows a removal. Times are told for the document's 100,000
//! files; what was copied is said beside them. The slow disk is `slow`'s part. Start at [`figures`].

use super::slow::SlowDisk;
use super::sum::Figure;
use super::{INTERRUPTED, Named, Setting};
use crate::copies::{Room, SPARE_BYTES};
use crate::dataset::{self, Dataset};
use crate::program::{Program, Start, slice, wait_any};
use ringroad_host::syscalls::Counter;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Files in each of the document's trees.
const FILES: u64 = 100_000;

/// A tree of the document, and how much of it is copied.
struct Tree {
    name: &'static str,
    bytes: u64,
    /// One of how many files, by default.
    part: u64,
}

const TREES: [Tree; 2] =
    [Tree { name: "4k", bytes: 4 << 10, part: 20 }, Tree { name: "100k", bytes: 100 << 10, part: 50 }];

/// `copy-4k/cp.s`, `copy-4k/uring-sync.s`, the same for `copy-100k`, `slow-4k` and `slow-100k`, and
/// `copy-4k/cp.calls` per file.
pub(super) fn figures(setting: &Setting<'_>) -> Vec<Named> {
    let mut named = Vec::new();
    for slow in [false, true] {
        for tree in &TREES {
            let prefix = format!("{}-{}", if slow { "slow" } else { "copy" }, tree.name);
            let measured = tree.measure(setting, slow);
            let each = |pick: fn(&Times) -> Result<Figure, String>| {
                measured.as_ref().map_err(Clone::clone).and_then(pick)
            };
            named.push((format!("{prefix}/cp.s"), each(|times| times.cp())));
            named.push((format!("{prefix}/uring-sync.s"), each(|times| times.ours())));
            named.push((format!("{prefix}/cp.calls"), each(|times| times.calls.clone())));
        }
    }
    named
}

/// What came of one tree on one disk: seconds, told for all of the document's files.
struct Times {
    cp_s: Vec<f64>,
    ours_s: Vec<f64>,
    calls: Result<Figure, String>,
    scale: String,
}

impl Times {
    fn cp(&self) -> Result<Figure, String> {
        self.told(&self.cp_s)
    }

    fn ours(&self) -> Result<Figure, String> {
        self.told(&self.ours_s)
    }

    fn told(&self, seconds: &[f64]) -> Result<Figure, String> {
        let median = Figure::median(seconds).ok_or("it was not measured")?;
        Ok(median.scaled(self.scale.as_str()))
    }
}

impl Tree {
    fn measure(&self, setting: &Setting<'_>, slow: bool) -> Result<Times, String> {
        let part = if setting.full { 1 } else { self.part };
        let files = FILES / part;
        let repeats = if setting.full { 1 } else { 3 };
        // A small file takes a block; the source and every copy of it stay to the end.
        let room = files * self.bytes.next_multiple_of(4096) * (1 + 2 * repeats) * 5 / 4;
        let place = Place::new(setting.scratch)?;
        if !slow && place.is_in_memory() {
            let scratch = setting.scratch.display();
            return Err(format!("{scratch} is in memory: give --scratch a folder on a disk"));
        }
        if room + SPARE_BYTES > place.free()? {
            return Err(format!(
                "{} has no room for {} MB of copies",
                setting.scratch.display(),
                room / 1_000_000
            ));
        }
        // Unmounted before the folder goes: what is made last goes first.
        let mut slow_disk =
            slow.then(|| SlowDisk::over(&place.path, room, files * (1 + 2 * repeats))).transpose()?;
        let source = place.path.join("source");
        let shape = Dataset::Uniform { files, bytes: self.bytes, folders: (files / 1000).max(1) };
        dataset::make(shape, 1.0, &source, 2).map_err(|error| error.to_string())?;
        slow_disk.as_mut().map_or(Ok(()), SlowDisk::slow_down)?;

        let mut times =
            Times { cp_s: Vec::new(), ours_s: Vec::new(), calls: Ok(Figure::of(0.0)), scale: String::new() };
        let cp = vec!["cp".to_owned(), "-r".to_owned()];
        let ours = vec![setting.ringroad.display().to_string(), "cp".to_owned(), "-r".to_owned()];
        let mut cold = true;
        for run in 0..repeats {
            let mut both = [(&cp, &mut times.cp_s), (&ours, &mut times.ours_s)];
            fastrand::shuffle(&mut both);
            for (nth, (words, seconds)) in both.into_iter().enumerate() {
                cold &= forget();
                touch(files * self.bytes);
                let target = place.path.join(format!("run-{run}-{nth}"));
                let one = copy(words, &source, &target, setting)?;
                seconds.push(one * part as f64);
            }
        }
        if !slow {
            times.calls = self.calls(&cp, &source, &place.path.join("counted"), files, setting);
        }
        times.scale = format!(
            "{files} files{}, {repeats} {}, {}{}",
            if part == 1 { String::new() } else { format!(", time × {part}") },
            if repeats == 1 { "time" } else { "times" },
            if cold { "not in the cache" } else { "in the cache, as dropping it needs root" },
            slow_disk.map(|disk| format!(", {}", disk.told())).unwrap_or_default(),
        );
        Ok(times)
    }

    /// System calls of `cp` for each file.
    fn calls(
        &self,
        cp: &[String],
        source: &Path,
        target: &Path,
        files: u64,
        setting: &Setting<'_>,
    ) -> Result<Figure, String> {
        // Of ourselves and all we start: what we do meanwhile is one wait and a few reads.
        let refused = |error: io::Error| format!("counting system calls: {error}");
        let counter = Counter::attach(std::process::id()).map_err(refused)?;
        copy(cp, source, target, setting)?;
        let calls = counter.read().map_err(refused)?;
        Ok(Figure::of(calls as f64 / files as f64).scaled(format!("{files} files")))
    }
}

/// Seconds for one copy.
fn copy(words: &[String], source: &Path, target: &Path, setting: &Setting<'_>) -> Result<f64, String> {
    let paths = [source, target].map(|path| path.display().to_string());
    let words: Vec<String> = words.iter().cloned().chain(paths).collect();
    let start = Instant::now();
    let mut program =
        Program::start(&Start { words, ..Start::default() }).map_err(|error| error.to_string())?;
    while !program.is_zombie() {
        if setting.stop.load(Ordering::Relaxed) {
            return Err(INTERRUPTED.to_owned());
        }
        wait_any(&mut [&mut program], slice());
    }
    let seconds = start.elapsed().as_secs_f64();
    program.has_ended();
    if program.succeeded() {
        Ok(seconds)
    } else {
        Err(format!("a copy failed: {}: {}", program.how_it_ended(), program.last_words()))
    }
}

/// Writes everything out and drops the page cache. Says whether it could.
fn forget() -> bool {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

/// Hosts of virtual machines take free memory back, and the first touch of a page then costs many times more
/// than a copy of it: so memory for a copy is touched before the clock starts.
fn touch(bytes: u64) {
    const PAGE: usize = 4096;
    let mut memory = vec![0_u8; usize::try_from(bytes).unwrap_or(0).min(1 << 30)];
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
    std::hint::black_box(&memory);
}

/// A folder of our own; it goes when this does.
struct Place {
    path: PathBuf,
}

impl Place {
    fn new(scratch: &Path) -> Result<Place, String> {
        let name = format!("ringroad-sources-{}-{:08x}", std::process::id(), fastrand::u32(..));
        let path = scratch.join(name);
        fs::create_dir(&path).map_err(|error| format!("create {}: {error}", path.display()))?;
        Ok(Place { path })
    }

    fn free(&self) -> Result<u64, String> {
        let room = Room::of(&self.path)
            .map_err(|error| format!("look at the disk of {}: {error}", self.path.display()))?;
        Ok(room.bytes)
    }

    /// Returns whether the files are on a file system in memory, which is never cold.
    fn is_in_memory(&self) -> bool {
        /// `TMPFS_MAGIC` of linux/magic.h.
        const TMPFS: u64 = 0x0102_1994;
        rustix::fs::statfs(&self.path).is_ok_and(|facts| facts.f_type as u64 == TMPFS)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed stays in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_place_goes_with_what_is_in_it() {
        let scratch = tempfile::tempdir().unwrap();
        let place = Place::new(scratch.path()).unwrap();
        fs::write(place.path.join("copy"), "x").unwrap();
        assert!(place.free().unwrap() > 0);
        drop(place);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_copy_that_fails_is_told_in_its_own_words_and_one_that_is_stopped_ends() {
        let scratch = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let setting =
            Setting { ringroad: Path::new("ringroad"), scratch: scratch.path(), full: false, stop: &stop };
        let words = ["sh", "-c", "echo no such thing >&2; exit 3"].map(str::to_owned);
        let error = copy(&words, Path::new("a"), Path::new("b"), &setting).unwrap_err();
        assert!(error.contains("code 3") && error.contains("no such thing"), "{error}");
        stop.store(true, Ordering::Relaxed);
        let words = ["sleep".to_owned()];
        let forever = copy(&words, Path::new("1000"), Path::new("1000"), &setting);
        assert_eq!(forever.unwrap_err(), INTERRUPTED);
    }
}
