//! Chooses the engine: by name, or by file system, kernel support, and the first files.
//!
//! The evidence is in docs/adr/0012: cached files cost the same either way, so `auto` begins with plain
//! calls. Files that are not cached need many reads in flight, which a ring provides cheaply and threads at
//! the price of threads. So the first cold files (`sample.rs`) change the way of working, if the kernel and
//! the file system are such that a ring helps.

use crate::error::Refusal;
use crate::flight::Flight;
use crate::options::{Engine, Options};
use crate::report::Choice;
use ringroad_engine::choose::may_make_rings;
use ringroad_uring::FUSE_SUPER_MAGIC;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Default number of files in flight per ring: the depth of uring-sync.
pub(crate) const IN_FLIGHT: usize = 64;
/// Maximum number of threads where threads replace a ring.
const THREADS_MOST: usize = 32;

/// Descriptors of one worker: both sides of a directory and of the one it is found again from, both sides of
/// a file, a ring with a file in flight.
const WORKERS: usize = 12;
/// Descriptors that are not the workers': standard streams, signals, both sides of an operand's place.
const OTHERS: usize = 8;
/// Descriptors with which one worker on a ring copies a tree, with pipes, which take most. With 16 it does
/// not.
const ON_A_RING: usize = 17;

/// A list of libraries that stand before libc in every program (ld.so(8)).
const PRELOADED: &str = "/etc/ld.so.preload";

/// Programs and libraries that may change what system calls do, and what they do not notice.
fn unheard(options: &Options) -> Option<&'static str> {
    if options.interposed {
        return Some("LD_PRELOAD is set, and its libraries do not hear of what a ring does");
    }
    if std::fs::read(PRELOADED).is_ok_and(|list| names_any(&list)) {
        return Some("/etc/ld.so.preload names libraries, which do not hear of what a ring does");
    }
    // proot and fakeroot-ng answer for the kernel by ptrace(2).
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_traced(&status).then_some("another program traces this one, and does not see what a ring does")
}

/// Returns whether a list of ld.so has a name; `#` begins a comment.
fn names_any(list: &[u8]) -> bool {
    let names = list.split(|byte| *byte == b'\n').flat_map(|line| line.split(|byte| *byte == b'#').next());
    names.flatten().any(|byte| !byte.is_ascii_whitespace() && *byte != b':')
}

/// Returns whether a process is traced, by its `status` in /proc.
fn is_traced(status: &str) -> bool {
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    tracer.is_some_and(|tracer| tracer.trim() != "0")
}

/// The decision, and what may still change.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) choice: Choice,
    /// Whether a ring is used once files are found cold.
    ring_when_cold: AtomicBool,
    /// Whether threads are added once files are found cold.
    threads_when_cold: AtomicBool,
    /// Whether threads may be added at all.
    more_threads: bool,
    /// Maximum number of threads.
    pub(crate) threads_most: usize,
    /// The reason why no ring could be made.
    no_ring: OnceLock<String>,
    /// Files that are not cached were found.
    pub(crate) cold: AtomicBool,
    /// Descriptors that the process may have, less those that it began with beside the standard streams.
    pub(crate) may_open: usize,
}

impl Chosen {
    /// Returns whether files are sampled.
    pub(crate) fn watches(&self) -> bool {
        let matters =
            self.ring_when_cold.load(Ordering::Relaxed) || self.threads_when_cold.load(Ordering::Relaxed);
        matters && !self.is_cold()
    }

    fn is_cold(&self) -> bool {
        self.cold.load(Ordering::Relaxed)
    }

    /// Returns whether rings are used from now on.
    pub(crate) fn rings_now(&self) -> bool {
        match self.choice.engine {
            Engine::Ring | Engine::RingSplice => true,
            _ => self.is_cold() && self.ring_when_cold.load(Ordering::Relaxed),
        }
    }

    /// Returns whether threads are added from now on.
    pub(crate) fn threads_now(&self) -> bool {
        self.is_cold() && self.threads_when_cold.load(Ordering::Relaxed)
    }

    /// Files given to a worker at a time, of a folder's `files`; at least one. Mostly all of them: so each
    /// worker is in a folder of its own, and does not wait for the lock of another's, as long as there are
    /// folders; a worker that finds none gets half of what another has left. Threads that wait for a disk get
    /// few, so that workers that join find some.
    pub(crate) fn batch(&self, files: usize) -> usize {
        if self.threads_now() { 64 } else { files.max(1) }
    }

    /// Records that no ring could be made.
    pub(crate) fn refuse_ring(&self, why: String) {
        let _ = self.no_ring.set(why);
        self.ring_when_cold.store(false, Ordering::Relaxed);
        self.threads_when_cold.store(self.more_threads, Ordering::Relaxed);
    }

    /// Returns the final choice.
    pub(crate) fn conclusion(&self) -> Choice {
        let mut choice = self.choice.clone();
        if let Some(why) = self.no_ring.get() {
            choice.refused = vec![(Engine::Ring, why.clone()), (Engine::RingSplice, why.clone())];
        }
        if self.is_cold() {
            let ring = self.rings_now();
            let what = if ring { "reading ahead by rings" } else { "more threads" };
            choice.why = format!("the files were not cached, which the first showed: {what}");
            if ring {
                choice.engine = Engine::Ring;
            }
        }
        choice
    }
}

/// Decides the engine. A ring engine that was named is refused if it cannot be used.
pub(crate) fn choose(options: &Options, sources: &[std::path::PathBuf]) -> Result<Chosen, Refusal> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let jobs = if options.interactive { 1 } else { options.jobs.unwrap_or(cores.clamp(2, 16)) };
    let may_open = crate::sys::descriptors();
    // How many fit if each takes `share` descriptors.
    let fit = |share: usize| (may_open / share).max(1);
    let jobs = jobs.min((may_open.saturating_sub(OTHERS) / WORKERS).max(1));
    // Each file in flight needs two descriptors, with pipes four; directories and listings need more.
    let in_flight = options.in_flight.unwrap_or(IN_FLIGHT).min(fit(16 * jobs));
    let more_threads = !options.interactive && options.jobs.is_none();
    let mut chosen = Chosen {
        choice: Choice { engine: options.engine, why: String::new(), refused: Vec::new(), jobs, in_flight },
        ring_when_cold: false.into(),
        threads_when_cold: false.into(),
        more_threads,
        threads_most: fit(16).clamp(jobs, THREADS_MOST.max(jobs)),
        no_ring: OnceLock::new(),
        cold: false.into(),
        may_open,
    };
    let choice = &mut chosen.choice;
    match options.engine {
        Engine::Threads => choice.why = "as asked".to_string(),
        Engine::Ring | Engine::RingSplice => {
            probe(2, may_open).map_err(|why| Refusal::Engine { engine: options.engine, why })?;
            choice.why = "as asked".to_string();
        }
        Engine::Auto => {
            choice.engine = Engine::Threads;
            let file_system = sources.first().and_then(|path| file_system(path));
            // Rings are tried only when needed: most copies are small, or of cached files.
            let mut cause = String::new();
            let refused = match &file_system {
                Some((name, Reads::ByWorkers | Reads::Never)) => Some(format!(
                    "{name} answers a ring's opens and reads through kernel threads, at several times their cost"
                )),
                _ => unheard(options).map(|why| {
                    cause = format!(", because {}", why.split(", ").next().unwrap_or(why));
                    format!("{why} (--engine ring uses one all the same)")
                }),
            };
            match refused {
                Some(why) => {
                    choice.refused = vec![(Engine::Ring, why.clone()), (Engine::RingSplice, why)];
                    if matches!(&file_system, Some((_, Reads::Never))) {
                        choice.why = "plain calls: the files are in memory already".to_string();
                    } else {
                        chosen.threads_when_cold = more_threads.into();
                        choice.why =
                            format!("plain calls{cause}; more threads when files turn out not to be cached");
                    }
                }
                None => {
                    chosen.ring_when_cold = (!options.interactive).into();
                    choice.why =
                        "plain calls while files are cached; reading ahead by rings when they are not"
                            .to_string();
                }
            }
        }
    }
    Ok(chosen)
}

/// Returns the reason if a ring cannot be made and entered.
fn probe(files: usize, may_open: usize) -> Result<(), String> {
    ring(files, false, may_open).map(drop)
}

/// Makes a ring for `files` files at a time, and enters it once. A seccomp filter may kill the process that
/// makes one: then a child tries first.
pub(crate) fn ring(files: usize, buffers: bool, may_open: usize) -> Result<Flight, String> {
    if may_open < ON_A_RING {
        return Err(format!("a process with {may_open} descriptors has too few for a ring"));
    }
    may_make_rings().map_err(|refusal| refusal.to_string())?;
    let mut flight = Flight::new(files, buffers)?;
    flight.turn(false).map_err(|why| format!("io_uring_enter: {why}"))?;
    Ok(flight)
}

/// How a file system serves a ring's reads of data that is not cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    /// Without a thread that waits.
    Inline,
    /// On kernel threads, and so are opens.
    ByWorkers,
    /// Everything is cached.
    Never,
}

/// Returns the name of the file system `path` is on, and how it reads.
fn file_system(path: &Path) -> Option<(&'static str, Reads)> {
    // Magic numbers: statfs(2).
    let found = rustix::fs::statfs(path).ok()?;
    Some(match found.f_type as u32 {
        0xef53 => ("ext4", Reads::Inline),
        0x5846_5342 => ("XFS", Reads::Inline),
        0x9123_683e => ("btrfs", Reads::Inline),
        0xf2f5_2010 => ("F2FS", Reads::Inline),
        0x0102_1994 => ("tmpfs", Reads::Never),
        0x8584_58f6 => ("ramfs", Reads::Never),
        0x794c_7630 => ("overlay", Reads::ByWorkers),
        FUSE_SUPER_MAGIC => ("FUSE", Reads::ByWorkers),
        0x6969 => ("NFS", Reads::ByWorkers),
        0xff53_4d42 => ("CIFS", Reads::ByWorkers),
        0x9fa0 => ("proc", Reads::ByWorkers),
        _ => ("this file system", Reads::ByWorkers),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auto() -> Chosen {
        let choice = Choice {
            engine: Engine::Threads,
            why: "cached, so far".to_string(),
            refused: Vec::new(),
            jobs: 2,
            in_flight: 64,
        };
        Chosen {
            choice,
            ring_when_cold: true.into(),
            threads_when_cold: false.into(),
            may_open: 1024,
            more_threads: true,
            threads_most: 32,
            no_ring: OnceLock::new(),
            cold: false.into(),
        }
    }

    #[test]
    fn cold_files_bring_rings_and_end_the_watching() {
        let chosen = auto();
        assert!(chosen.watches() && !chosen.rings_now());
        assert_eq!(chosen.conclusion().engine, Engine::Threads);
        chosen.cold.store(true, Ordering::Relaxed);
        assert!(!chosen.watches() && chosen.rings_now() && !chosen.threads_now());
        assert_eq!(chosen.conclusion().engine, Engine::Ring);
    }

    #[test]
    fn a_tracer_and_a_list_of_preloaded_libraries_are_recognised() {
        for (status, traced) in
            [("Name:\tcp\nTracerPid:\t0\n", false), ("TracerPid:\t17\n", true), ("", false)]
        {
            assert_eq!(is_traced(status), traced, "{status:?}");
        }
        let lists: [(&[u8], bool); 5] = [
            (b"", false),
            (b" \n# a comment\n", false),
            (b"/lib/a.so", true),
            (b"#/lib/a.so\n /lib/b.so # c", true),
            (b"\n:\t", false),
        ];
        for (list, any) in lists {
            assert_eq!(names_any(list), any, "{list:?}");
        }
    }

    #[test]
    fn where_no_ring_can_be_made_cold_files_bring_threads_and_the_reason_is_told() {
        let chosen = auto();
        chosen.cold.store(true, Ordering::Relaxed);
        chosen.refuse_ring("forbidden".to_string());
        assert!(!chosen.rings_now() && chosen.threads_now());
        let told = chosen.conclusion();
        assert_eq!(told.engine, Engine::Threads);
        assert_eq!(told.refused.first(), Some(&(Engine::Ring, "forbidden".to_string())));
    }
}
