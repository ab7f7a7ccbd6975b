//! One run of a program that copies a tree of files: the state it finds, the clock around it, what it cost,
//! and whether all of it arrived.
//!
//! Hosts of virtual machines take free memory back, and the first touch of a page can then cost a hundred
//! times a later one. So before each run everything is written out, memory for a copy is touched, and the
//! source is read, or for a cold run thrown out of the caches. Nothing of that is timed. Start at
//! [`Bench::copy`].
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use crate::copies::{self, Room};
use crate::dataset::{self, Dataset};
use crate::program::{self, Filling, Program, Start, wait_any};
use crate::run::{Bench, Failure, Measured};
use crate::suite::{Load, Server, Tree};
use ringroad_host::cpu::{self, ProcessClock};
use ringroad_measure::record::Run;
use ringroad_measure::units::counted;
use std::fs;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longer than this no copy may take: a program that asks a question would wait for ever.
const PATIENCE: Duration = Duration::from_secs(1800);

/// What is in a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Content {
    files: u64,
    bytes: u64,
}

impl Bench<'_> {
    /// Runs one program on one tree. The source is made if it is not there yet; it stays, and so does the
    /// copy, until the run is over.
    ///
    /// # Errors
    /// [`Failure`] says what to do with the cell.
    pub(crate) fn copy(&self, server: &Server, load: &Load, tree: &Tree) -> Result<Measured, Failure> {
        let failed = |what: &str, error: io::Error| Failure::Failed(format!("{what}: {error}"));
        let Some(scratch) = self.scratch else {
            return Err(Failure::Skipped("no folder for the trees was given".to_owned()));
        };
        let source = source(scratch, tree)?;
        let content =
            content_of(&source, &mut |_| Ok(())).map_err(|error| failed("look at the tree", error))?;
        let room = Room { bytes: content.bytes, files: content.files };
        let target = copies::fresh(scratch, room, self.stop)
            .map_err(|error| failed("find a place for the copy", error))?;
        prepare(&source, content, tree.cold).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem if tree.cold => {
                Failure::Skipped(format!("a cold run drops the machine's caches, which takes root ({error})"))
            }
            _ => failed("prepare the tree", error),
        })?;
        self.timed(server, load, (&source, &target), content)
    }

    fn timed(
        &self,
        server: &Server,
        load: &Load,
        (source, target): (&Path, &Path),
        content: Content,
    ) -> Result<Measured, Failure> {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let filling = Filling {
            ringroad: self.ringroad,
            protocol: load.protocol,
            addr: nowhere,
            arguments: &load.arguments,
        };
        let paths = [("{source}", source), ("{target}", target)];
        let place = |word: String| {
            paths.iter().fold(word, |word, (name, path)| word.replace(name, &path.to_string_lossy()))
        };
        let words = filling.words(&server.command).into_iter().map(place).collect();
        // A copy runs alone, so it may have the whole machine.
        let mut cpus: Vec<u32> = [&self.cores.server, &self.cores.client, &self.cores.harness]
            .into_iter()
            .flatten()
            .copied()
            .collect();
        cpus.sort_unstable();
        cpus.dedup();
        let own = ProcessClock::own();
        let (machine, own_before) = (cpu::machine().ok(), own.read().ok());
        let started = Instant::now();
        let env = server.env.iter().map(|(key, value)| (key.clone(), filling.fill(value))).collect();
        let mut program = Program::start(&Start { words, env, cwd: None, cpus, is_told: false })?;
        let clock = ProcessClock::of(program.pid()).ok();
        while !program.is_zombie() {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Failure::Interrupted);
            }
            if started.elapsed() > PATIENCE {
                return Err(Failure::Failed(format!("it did not end within {PATIENCE:?}")));
            }
            wait_any(&mut [&mut program], program::slice());
        }
        let time = started.elapsed();
        // Ended but not reaped, so its clock still stands.
        let cpu = clock.and_then(|clock| clock.read().ok());
        let harness_cpu = own_before.zip(own.read().ok()).and_then(|(before, now)| now.checked_sub(before));
        let steal_share =
            machine.zip(cpu::machine().ok()).and_then(|(before, after)| after.steal_share_since(&before));
        let _ = program.has_ended();
        if !program.succeeded() {
            let said = program.last_words();
            return Err(match program.exit_code() {
                Some(2) => Failure::Skipped(format!("it cannot run here: {said}")),
                // A shell's, for what it was to start.
                Some(126 | 127) => Failure::Skipped(said),
                _ => Failure::Failed(format!("{}: {said}", program.how_it_ended())),
            });
        }
        let arrived = content_of(target, &mut |_| Ok(()))
            .map_err(|error| Failure::Failed(format!("look at the copy: {error}")))?;
        let missing = (arrived != content).then(|| {
            format!(
                "its copy has {} with {}, and the tree {} with {}",
                counted(arrived.files, "file"),
                counted(arrived.bytes, "byte"),
                content.files,
                content.bytes
            )
        });
        let seconds = time.as_secs_f64();
        Ok(Measured {
            run: Run {
                duration_s: seconds,
                completed: content.files,
                rps: content.files as f64 / seconds,
                cpu_us_per_request: cpu
                    .filter(|_| content.files > 0)
                    .map(|cpu| cpu.as_secs_f64() * 1e6 / content.files as f64),
                server_cpu_share: cpu.map(|cpu| cpu.as_secs_f64() / seconds),
                steal_share,
                client_count: content.files,
                ..Run::default()
            },
            sent: content.files,
            harness_cpu,
            watched: time,
            server_failed: missing,
            ..Measured::default()
        })
    }
}

/// Returns the folder with the tree, made if it is not there yet. Cold and warm runs share it.
fn source(scratch: &Path, tree: &Tree) -> Result<PathBuf, Failure> {
    let name: String =
        tree.dataset.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let path = scratch.join(format!("{name}-{}", tree.scale));
    if path.is_dir() {
        return Ok(path);
    }
    let failed = |how: String| Failure::Failed(format!("make the tree {}: {how}", tree.dataset));
    let dataset: Dataset = tree.dataset.parse().map_err(failed)?;
    // In place at once, so that no run takes half of it for the whole.
    let new = path.with_extension("new");
    remove(&new).map_err(|error| failed(error.to_string()))?;
    fs::create_dir_all(scratch).map_err(|error| failed(error.to_string()))?;
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    dataset::make(dataset, tree.scale, &new, threads).map_err(|error| failed(error.to_string()))?;
    fs::rename(&new, &path).map_err(|error| failed(error.to_string()))?;
    Ok(path)
}

/// Brings the machine into the same state before every run.
fn prepare(source: &Path, content: Content, cold: bool) -> io::Result<()> {
    let mut piece = vec![0; 128 * 1024];
    content_of(source, &mut |file| {
        let mut file = fs::File::open(file)?;
        while file.read(&mut piece)? > 0 {}
        Ok(())
    })?;
    rustix::fs::sync();
    touch_memory(content.bytes);
    if cold {
        fs::write("/proc/sys/vm/drop_caches", "3")?;
    }
    Ok(())
}

/// Makes the host give memory to this machine before the clock runs: what a copy takes, but no more than half
/// of what is free.
fn touch_memory(bytes: u64) {
    let free = ringroad_host::facts::facts().memory_available_bytes.unwrap_or(0);
    let wanted = (2 * bytes + (64 << 20)).min(free / 2);
    let Ok(wanted) = usize::try_from(wanted) else { return };
    let mut memory: Vec<u8> = Vec::new();
    if memory.try_reserve_exact(wanted).is_ok() {
        memory.resize(wanted, 1);
        std::hint::black_box(&memory);
    }
}

/// Counts the regular files below a folder and calls `each` with every one; links are not followed.
fn content_of(folder: &Path, each: &mut dyn FnMut(&Path) -> io::Result<()>) -> io::Result<Content> {
    let mut content = Content::default();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                content.files += 1;
                content.bytes += entry.metadata()?.len();
                each(&entry.path())?;
            }
        }
    }
    Ok(content)
}

/// Removes a tree if it is there.
fn remove(tree: &Path) -> io::Result<()> {
    match fs::remove_dir_all(tree) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
