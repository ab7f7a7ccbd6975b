//! Which engine: by name, or by file system, by what the kernel allows, and by what the first files show.
//!
//! The evidence is in docs/adr/0009: warm files cost the same either way, so `auto` begins with plain calls; cold ones
//! want many reads in flight, which a ring has for nothing and threads have at the price of threads. So the first
//! cold files change the way of working, if the kernel and the file system are such that a ring helps.

use crate::error::Refusal;
use crate::flight::Flight;
use crate::options::{Engine, Options};
use crate::report::Choice;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Files in flight per ring, unless told otherwise: the depth of uring-sync.
pub(crate) const IN_FLIGHT: usize = 64;
/// Files at the beginning of a batch that are timed.
pub(crate) const SAMPLE: usize = 16;
/// A file whose open and first read take longer than this on average waits for a disk: cached, both take 2 to 5 µs.
pub(crate) const COLD: Duration = Duration::from_micros(40);
/// The most threads where threads have to do what a ring would.
pub(crate) const THREADS_MOST: usize = 32;

/// What was decided, and what may change.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) choice: Choice,
    /// Whether a ring is used once files are found cold.
    pub(crate) ring_when_cold: bool,
    /// Whether threads are added once files are found cold.
    pub(crate) threads_when_cold: bool,
    /// Cold files were found.
    pub(crate) cold: AtomicBool,
}

impl Chosen {
    /// Whether files are timed.
    pub(crate) fn watches(&self) -> bool {
        (self.ring_when_cold || self.threads_when_cold) && !self.cold.load(Ordering::Relaxed)
    }

    /// Whether rings are used from now on.
    pub(crate) fn rings_now(&self) -> bool {
        match self.choice.engine {
            Engine::Ring | Engine::RingSplice => true,
            _ => self.ring_when_cold && self.cold.load(Ordering::Relaxed),
        }
    }
}

/// Decides. A named ring engine is strict: unusable is a refusal.
pub(crate) fn choose(options: &Options, sources: &[std::path::PathBuf]) -> Result<Chosen, Refusal> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let jobs = if options.interactive { 1 } else { options.jobs.unwrap_or(cores.clamp(2, 16)) };
    let in_flight = options.in_flight.unwrap_or(IN_FLIGHT).min(in_flight_for_descriptors(jobs));
    let mut chosen = Chosen {
        choice: Choice { engine: options.engine, why: String::new(), refused: Vec::new(), jobs, in_flight },
        ring_when_cold: false,
        threads_when_cold: false,
        cold: false.into(),
    };
    let choice = &mut chosen.choice;
    match options.engine {
        Engine::Threads => choice.why = "as asked".to_string(),
        Engine::Ring | Engine::RingSplice => {
            probe(2).map_err(|why| Refusal::Engine { engine: options.engine, why })?;
            choice.why = "as asked".to_string();
        }
        Engine::Auto => {
            choice.engine = Engine::Threads;
            let file_system = sources.first().and_then(|path| file_system(path));
            let filtered = filtered();
            let refused = match (&file_system, filtered, probe_unless(filtered)) {
                (_, true, _) => Some(
                    "a seccomp filter is in force, and some end a program that tries io_uring (--engine ring tries)"
                        .to_string(),
                ),
                (_, _, Err(why)) => Some(why),
                (Some((name, false)), _, Ok(())) => Some(format!(
                    "{name} answers a ring's opens and reads through kernel threads, at several times their cost"
                )),
                _ => None,
            };
            let free = !options.interactive && options.jobs != Some(1);
            match refused {
                Some(why) => {
                    choice.refused = vec![(Engine::Ring, why.clone()), (Engine::RingSplice, why)];
                    chosen.threads_when_cold = free && options.jobs.is_none();
                    choice.why = "plain calls; more threads when files turn out not to be cached".to_string();
                }
                None => {
                    chosen.ring_when_cold = !options.interactive;
                    choice.why =
                        "plain calls while files are cached; reading ahead by rings when they are not"
                            .to_string();
                }
            }
        }
    }
    Ok(chosen)
}

/// Whether a ring can be made, and if not, why.
fn probe(files: usize) -> Result<(), String> {
    let mut flight = Flight::new(files, false).map_err(|why| why.to_string())?;
    flight.turn(false).map_err(|why| format!("io_uring_enter: {why}"))
}

fn probe_unless(forbidden: bool) -> Result<(), String> {
    if forbidden { Ok(()) } else { probe(2) }
}

/// Whether a seccomp filter decides about this process's system calls.
fn filtered() -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
}

/// Each file in flight is two descriptors, with pipes four: a quarter of what the process may have.
fn in_flight_for_descriptors(jobs: usize) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1024);
    (usize::try_from(limit).unwrap_or(1024) / 16 / jobs.max(1)).max(1)
}

/// The name of the file system `path` is on, and whether it opens and reads without a kernel thread.
fn file_system(path: &Path) -> Option<(&'static str, bool)> {
    // Magic numbers: statfs(2).
    let found = rustix::fs::statfs(path).ok()?;
    #[allow(clippy::unnecessary_cast)] // The field's width differs between architectures.
    Some(match found.f_type as u64 & 0xffff_ffff {
        0xef53 => ("ext4", true),
        0x5846_5342 => ("XFS", true),
        0x9123_683e => ("btrfs", true),
        0xf2f5_2010 => ("F2FS", true),
        0x0102_1994 => ("tmpfs", false),
        0x8584_58f6 => ("ramfs", false),
        0x794c_7630 => ("overlay", false),
        0x6573_5546 => ("FUSE", false),
        0x6969 => ("NFS", false),
        0xff53_4d42 => ("CIFS", false),
        0x9fa0 => ("proc", false),
        _ => ("this file system", false),
    })
}
