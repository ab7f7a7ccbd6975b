//! Which engine: by name, or by file system, by what the kernel allows, and by what the first files show.
//!
//! The evidence is in docs/adr/0012: warm files cost the same either way, so `auto` begins with plain calls; cold ones
//! want many reads in flight, which a ring has for nothing and threads have at the price of threads. So the first
//! cold files change the way of working, if the kernel and the file system are such that a ring helps.

use crate::error::Refusal;
use crate::flight::Flight;
use crate::options::{Engine, Options};
use crate::report::Choice;
use ringroad_engine::choose::may_make_rings;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Files in flight per ring, unless told otherwise: the depth of uring-sync.
pub(crate) const IN_FLIGHT: usize = 64;
/// Files looked at before it is judged whether files are cached.
const SAMPLE: u32 = 16;
/// Where the kernel does not say it, a first byte that takes longer than this waits for a disk: cached, it takes 1 µs.
const COLD: Duration = Duration::from_micros(40);
/// The most threads where threads have to do what a ring would.
const THREADS_MOST: usize = 32;

/// The first bytes of some files: whether they were cached.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    files: u32,
    /// Files of which the kernel said that it would have to read them.
    absent: u32,
    /// Where it does not say such things: files that made us wait, and how long all of them did.
    slow: u32,
    waited: Duration,
}

impl Sample {
    /// Looks at a file more. Reading its first byte without waiting (`RWF_NOWAIT`, `preadv2(2)`) fails with EAGAIN
    /// where it is not cached, which no other load of the machine can feign; how long it takes where that is not
    /// possible tells less.
    pub(crate) fn look(&mut self, source: BorrowedFd<'_>) {
        let mut byte = [0];
        let at_once = ReadWriteFlags::NOWAIT;
        match rustix::io::preadv2(source, &mut [IoSliceMut::new(&mut byte)], 0, at_once) {
            Ok(_) => self.add(Duration::ZERO),
            Err(Errno::AGAIN) => {
                self.absent += 1;
                self.add(Duration::ZERO);
            }
            Err(_) => {
                let before = Instant::now();
                // What fails here fails again where its bytes are read, and is told there.
                let _ = rustix::io::pread(source, &mut byte, 0);
                self.add(before.elapsed());
            }
        }
    }

    fn add(&mut self, waited: Duration) {
        self.files += 1;
        self.slow += u32::from(waited > COLD);
        self.waited += waited;
    }

    /// Whether files wait for a disk, once there are enough of them; then others are looked at. A single one shows
    /// nothing: it may be new, and where time is all there is, somebody else had the CPU.
    pub(crate) fn judge(&mut self) -> Option<bool> {
        if self.files < SAMPLE {
            return None;
        }
        let Sample { files, absent, slow, waited } = std::mem::take(self);
        Some(absent > 1 || (slow > 1 && waited > COLD * files))
    }
}

/// What was decided, and what may change.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) choice: Choice,
    /// Whether a ring is used once files are found cold.
    ring_when_cold: AtomicBool,
    /// Whether threads are added once files are found cold.
    threads_when_cold: AtomicBool,
    /// Whether threads may be added at all.
    more_threads: bool,
    /// Up to how many.
    pub(crate) threads_most: usize,
    /// Why no ring could be made when one was wanted.
    no_ring: OnceLock<String>,
    /// Cold files were found.
    pub(crate) cold: AtomicBool,
}

impl Chosen {
    /// Whether files are looked at.
    pub(crate) fn watches(&self) -> bool {
        let matters =
            self.ring_when_cold.load(Ordering::Relaxed) || self.threads_when_cold.load(Ordering::Relaxed);
        matters && !self.is_cold()
    }

    fn is_cold(&self) -> bool {
        self.cold.load(Ordering::Relaxed)
    }

    /// Whether rings are used from now on.
    pub(crate) fn rings_now(&self) -> bool {
        match self.choice.engine {
            Engine::Ring | Engine::RingSplice => true,
            _ => self.is_cold() && self.ring_when_cold.load(Ordering::Relaxed),
        }
    }

    /// Whether threads are added from now on.
    pub(crate) fn threads_now(&self) -> bool {
        self.is_cold() && self.threads_when_cold.load(Ordering::Relaxed)
    }

    /// There is no ring after all.
    pub(crate) fn refuse_ring(&self, why: String) {
        let _ = self.no_ring.set(why);
        self.ring_when_cold.store(false, Ordering::Relaxed);
        self.threads_when_cold.store(self.more_threads, Ordering::Relaxed);
    }

    /// What was chosen in the end.
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

/// Decides. A named ring engine is strict: unusable is a refusal.
pub(crate) fn choose(options: &Options, sources: &[std::path::PathBuf]) -> Result<Chosen, Refusal> {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let jobs = if options.interactive { 1 } else { options.jobs.unwrap_or(cores.clamp(2, 16)) };
    // Each file in flight is two descriptors, with pipes four; directories and listings come on top.
    let in_flight = options.in_flight.unwrap_or(IN_FLIGHT).min(descriptors(16 * jobs));
    let more_threads = !options.interactive && options.jobs.is_none();
    let mut chosen = Chosen {
        choice: Choice { engine: options.engine, why: String::new(), refused: Vec::new(), jobs, in_flight },
        ring_when_cold: false.into(),
        threads_when_cold: false.into(),
        more_threads,
        threads_most: descriptors(16).clamp(jobs, THREADS_MOST.max(jobs)),
        no_ring: OnceLock::new(),
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
            // Rings are tried when they are needed: most copies are small, or find their files cached.
            let refused = match &file_system {
                Some((name, false)) => Some(format!(
                    "{name} answers a ring's opens and reads through kernel threads, at several times their cost"
                )),
                _ => None,
            };
            match refused {
                Some(why) => {
                    choice.refused = vec![(Engine::Ring, why.clone()), (Engine::RingSplice, why)];
                    chosen.threads_when_cold = more_threads.into();
                    choice.why = "plain calls; more threads when files turn out not to be cached".to_string();
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

/// Whether a ring can be made and entered, and if not, why.
fn probe(files: usize) -> Result<(), String> {
    ring(files, false).map(drop)
}

/// A ring for `files` files at a time, entered once. Where a filter decides about system calls it may end whoever makes
/// one: then a child goes first.
pub(crate) fn ring(files: usize, buffers: bool) -> Result<Flight, String> {
    may_make_rings().map_err(|refusal| refusal.to_string())?;
    let mut flight = Flight::new(files, buffers).map_err(|why| why.to_string())?;
    flight.turn(false).map_err(|why| format!("io_uring_enter: {why}"))?;
    Ok(flight)
}

/// How many things fit when each may take `share` descriptors of what the process may have.
fn descriptors(share: usize) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1024);
    (usize::try_from(limit).unwrap_or(1024) / share).max(1)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

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

    /// What is found where the kernel does not say what is cached.
    fn timed(waits: &[u64]) -> Option<bool> {
        let mut sample = Sample::default();
        waits.iter().for_each(|wait| sample.add(Duration::from_micros(*wait)));
        sample.judge()
    }

    #[test]
    fn one_file_that_took_long_shows_nothing_and_two_do() {
        assert_eq!(timed(&[3; 15]), None, "too few");
        assert_eq!(timed(&[3; 16]), Some(false), "cached");
        assert_eq!(timed(&[150; 16]), Some(true), "each from the disk");
        let mut interrupted = [3; 16];
        interrupted[5] = 4000;
        assert_eq!(timed(&interrupted), Some(false), "a time slice of somebody else's");
        // What is read ahead beneath us: few wait, and those long.
        interrupted[11] = 4000;
        assert_eq!(timed(&interrupted), Some(true));
        let mut little = [3; 16];
        little[..2].fill(41);
        assert_eq!(timed(&little), Some(false), "little all in all");
    }

    #[test]
    fn a_file_that_was_just_written_is_found_cached_and_judging_begins_anew() -> std::io::Result<()> {
        let path = std::env::temp_dir().join(format!("ringroad-cached-{}", std::process::id()));
        std::fs::write(&path, [7; 100_000])?;
        let file = std::fs::File::open(&path)?;
        std::fs::remove_file(&path)?;
        let mut sample = Sample::default();
        for _ in 0..2 {
            (0..16).for_each(|_| sample.look(file.as_fd()));
            assert_eq!(sample.judge(), Some(false), "{sample:?}");
            assert_eq!(sample.judge(), None);
        }
        Ok(())
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
