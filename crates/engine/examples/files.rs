//! Cost of each way to do a file operation: `cargo run --release -p ringroad-engine --example files -- FOLDER
//! [ROUNDS]`.
//!
//! Ways: the plain call; the plain call that must not block (`RWF_NOWAIT`, `RESOLVE_CACHED`); the ring's
//! operation; a thread of the blocking pool. Depth is the number of operations in flight (plain calls: always
//! one). Figures are microseconds per operation: wall time, and CPU time of all threads including the ring's
//! kernel workers. Rounds are interleaved over the ways; the output is the median round with minimum and
//! maximum. The file system of the folder is measured; created files are removed.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use ringroad_engine::{DriverName, Runtime, spawn_blocking};
use ringroad_uring::abi::setup::{IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_SINGLE_ISSUER};
use ringroad_uring::abi::{io_uring_op, io_uring_sqe};
use ringroad_uring::{Ring, Sqe, Wait};
use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Size of the file that is read: so large that reads at random offsets do not hit pages of earlier reads.
const FILE_BYTES: u64 = 64 << 20;
const SMALL: usize = 4 << 10;
const LARGE: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Promised,
    Ring,
    Pool,
}

/// The operation, done `count` times per round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Read { bytes: usize, cold: bool },
    Write { bytes: usize },
    Open,
    Stat,
    Sync,
    Truncate,
    Make,
    Rename,
    Unlink,
}

impl Work {
    const ALL: [Work; 13] = [
        Work::Read { bytes: SMALL, cold: false },
        Work::Read { bytes: SMALL, cold: true },
        Work::Read { bytes: LARGE, cold: false },
        Work::Read { bytes: LARGE, cold: true },
        Work::Write { bytes: SMALL },
        Work::Write { bytes: LARGE },
        Work::Open,
        Work::Stat,
        Work::Sync,
        Work::Truncate,
        Work::Make,
        Work::Rename,
        Work::Unlink,
    ];

    fn count(self) -> usize {
        match self {
            Work::Read { bytes: LARGE, .. } | Work::Write { bytes: LARGE } => 64,
            Work::Read { cold: true, .. } => 512,
            Work::Sync => 32,
            _ => 1024,
        }
    }

    fn name(self) -> String {
        let size = |bytes| if bytes == SMALL { "4 KiB" } else { "1 MiB" };
        match self {
            Work::Read { bytes, cold } => {
                format!("read {} {}", size(bytes), if cold { "cold" } else { "warm" })
            }
            Work::Write { bytes } => format!("write {}", size(bytes)),
            other => format!("{other:?}").to_lowercase(),
        }
    }

    /// Whether the operation has a non-blocking form.
    fn is_promised(self) -> bool {
        matches!(self, Work::Read { cold: false, .. } | Work::Write { .. } | Work::Open)
    }
}

/// Files for the operations.
struct Place {
    folder: PathBuf,
    file: File,
    /// One per operation in flight, so that syncs and truncates do not contend for one file.
    files: Vec<File>,
    names: Vec<CString>,
    others: Vec<CString>,
    offsets: Vec<u64>,
}

fn name(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

impl Place {
    fn new(folder: &Path) -> Place {
        let folder = folder.join(format!("ringroad-files-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("large");
        let bytes: Vec<u8> = (0..LARGE).map(|at| (at % 251) as u8).collect();
        let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        for at in (0..FILE_BYTES).step_by(LARGE) {
            file.write_all_at(&bytes, at).unwrap();
        }
        file.sync_all().unwrap();
        let many = |prefix: &str| -> Vec<CString> {
            (0..1024).map(|at| name(&folder.join(format!("{prefix}{at}")))).collect()
        };
        let (names, others) = (many("a"), many("b"));
        let open = |name: &CString| {
            let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
            File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
        };
        let files = (0..64).map(|at| open(&name(&folder.join(format!("f{at}"))))).collect();
        let mut seed = 1u64;
        let offsets = (0..1024)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (seed >> 33) % (FILE_BYTES / LARGE as u64) * LARGE as u64 + (seed >> 50) % 200 * SMALL as u64
            })
            .collect();
        Place { folder, file, files, names, others, offsets }
    }

    fn exists(&self, yes: bool) {
        for name in &self.names {
            // SAFETY: paths are NUL-terminated and live; the descriptor is closed where it was opened.
            unsafe {
                if yes {
                    libc::close(libc::open(name.as_ptr(), libc::O_CREAT | libc::O_WRONLY, 0o600));
                } else {
                    libc::unlink(name.as_ptr());
                    libc::rmdir(name.as_ptr());
                }
            }
        }
        for name in &self.others {
            // SAFETY: as above.
            unsafe { libc::unlink(name.as_ptr()) };
        }
    }

    /// Prepares a round; not measured.
    fn prepare(&self, work: Work) {
        let advice = |advice| {
            // SAFETY: posix_fadvise(2) takes numbers only.
            unsafe { libc::posix_fadvise(self.file.as_raw_fd(), 0, 0, advice) };
        };
        match work {
            Work::Read { bytes, cold } => {
                advice(if bytes == SMALL { libc::POSIX_FADV_RANDOM } else { libc::POSIX_FADV_NORMAL });
                if cold {
                    self.file.sync_all().unwrap();
                    advice(libc::POSIX_FADV_DONTNEED);
                } else {
                    let mut all = vec![0; LARGE];
                    (0..FILE_BYTES).step_by(LARGE).for_each(|at| {
                        self.file.read_at(&mut all, at).unwrap();
                    });
                }
            }
            Work::Open | Work::Stat | Work::Rename | Work::Unlink => {
                self.exists(false);
                self.exists(true);
            }
            Work::Make => self.exists(false),
            Work::Sync => self.files.iter().for_each(|file| {
                file.write_all_at(&[1; SMALL], 0).unwrap();
            }),
            Work::Write { .. } | Work::Truncate => {}
        }
    }

    fn call(&self, work: Work, at: usize, buffer: *mut u8, into: *mut libc::statx, promised: bool) -> Call {
        let small = self.files[at % self.files.len()].as_raw_fd();
        let path = self.names[at].as_ptr();
        let (fd, offset) = (self.file.as_raw_fd(), self.offsets[at]);
        match work {
            Work::Read { bytes, .. } => Call::Read { fd, buffer, bytes, offset, promised },
            // In place, so that only the page cache is involved.
            Work::Write { bytes } => Call::Write { fd, buffer, bytes, offset, promised },
            Work::Open => Call::Open { path, promised },
            Work::Stat => Call::Stat { path, into },
            Work::Sync => Call::Sync { fd: small },
            Work::Truncate => Call::Truncate { fd: small, bytes: (at % 7 * SMALL) as u64 },
            Work::Make => Call::Make { path },
            Work::Rename => Call::Rename { path, to: self.others[at].as_ptr() },
            Work::Unlink => Call::Unlink { path },
        }
    }
}

#[derive(Clone, Copy)]
enum Call {
    Read { fd: i32, buffer: *mut u8, bytes: usize, offset: u64, promised: bool },
    Write { fd: i32, buffer: *mut u8, bytes: usize, offset: u64, promised: bool },
    Open { path: *const libc::c_char, promised: bool },
    Stat { path: *const libc::c_char, into: *mut libc::statx },
    Sync { fd: i32 },
    Truncate { fd: i32, bytes: u64 },
    Make { path: *const libc::c_char },
    Rename { path: *const libc::c_char, to: *const libc::c_char },
    Unlink { path: *const libc::c_char },
}

// SAFETY: what it points to is the buffers and names of this program, which outlive every round, and no two
// calls in flight share a buffer.
unsafe impl Send for Call {}

#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

impl Call {
    /// Does the plain call; returns its result, negative on failure. Closes an opened descriptor.
    fn plain(self) -> i64 {
        // SAFETY: `Send` above: all of it is valid for the call.
        let answer = unsafe {
            match self {
                Call::Read { fd, buffer, bytes, offset, promised } => {
                    let vector = libc::iovec { iov_base: buffer.cast(), iov_len: bytes };
                    let flags = if promised { libc::RWF_NOWAIT } else { 0 };
                    libc::preadv2(fd, &raw const vector, 1, offset as i64, flags) as i64
                }
                Call::Write { fd, buffer, bytes, offset, promised } => {
                    let vector = libc::iovec { iov_base: buffer.cast(), iov_len: bytes };
                    let flags = if promised { libc::RWF_NOWAIT } else { 0 };
                    libc::pwritev2(fd, &raw const vector, 1, offset as i64, flags) as i64
                }
                Call::Open { path, promised } => {
                    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
                    let resolve = if promised { libc::RESOLVE_CACHED } else { 0 };
                    let how = OpenHow { flags: flags as u64, mode: 0, resolve };
                    libc::syscall(
                        libc::SYS_openat2,
                        libc::AT_FDCWD,
                        path,
                        &raw const how,
                        size_of::<OpenHow>(),
                    )
                }
                Call::Stat { path, into } => {
                    i64::from(libc::statx(libc::AT_FDCWD, path, 0, libc::STATX_BASIC_STATS, into))
                }
                Call::Sync { fd } => i64::from(libc::fsync(fd)),
                Call::Truncate { fd, bytes } => i64::from(libc::ftruncate(fd, bytes as i64)),
                Call::Make { path } => i64::from(libc::mkdir(path, 0o700)),
                Call::Rename { path, to } => i64::from(libc::rename(path, to)),
                Call::Unlink { path } => i64::from(libc::unlink(path)),
            }
        };
        if let (Call::Open { .. }, 0..) = (self, answer) {
            // SAFETY: just opened, and no other code has the number.
            unsafe { libc::close(answer as i32) };
        }
        answer
    }

    fn entry(self) -> Sqe {
        let raw = |opcode: io_uring_op, fd: i32, address: u64, offset: u64, bytes: u32| {
            // SAFETY: integers only.
            let mut raw: io_uring_sqe = unsafe { std::mem::zeroed() };
            (raw.opcode, raw.fd, raw.len) = (opcode as u8, fd, bytes);
            raw.__bindgen_anon_1.off = offset;
            raw.__bindgen_anon_2.addr = address;
            Sqe::from_raw(raw)
        };
        let here = libc::AT_FDCWD;
        match self {
            Call::Read { fd, buffer, bytes, offset, .. } => Sqe::read(fd, buffer, bytes as u32, offset),
            Call::Write { fd, buffer, bytes, offset, .. } => Sqe::write(fd, buffer, bytes as u32, offset),
            Call::Open { path, .. } => Sqe::openat(here, path, libc::O_RDONLY | libc::O_CLOEXEC, 0),
            Call::Stat { path, into } => Sqe::statx(here, path, 0, libc::STATX_BASIC_STATS, into),
            Call::Sync { fd } => Sqe::fsync(fd, 0),
            Call::Truncate { fd, bytes } => raw(io_uring_op::IORING_OP_FTRUNCATE, fd, 0, bytes, 0),
            Call::Make { path } => raw(io_uring_op::IORING_OP_MKDIRAT, here, path as u64, 0, 0o700),
            Call::Rename { path, to } => {
                raw(io_uring_op::IORING_OP_RENAMEAT, here, path as u64, to as u64, here as u32)
            }
            Call::Unlink { path } => raw(io_uring_op::IORING_OP_UNLINKAT, here, path as u64, 0, 0),
        }
    }
}

fn process_cpu() -> Duration {
    // SAFETY: the kernel fills the time it is pointed to.
    let time = unsafe {
        let mut time = std::mem::zeroed::<libc::timespec>();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time);
        time
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

struct Bench {
    place: Place,
    ring: Ring,
    runtime: Runtime,
    pointers: Vec<*mut u8>,
    stats: Vec<libc::statx>,
}

impl Bench {
    /// Runs one round; returns wall and CPU time per operation in microseconds, and the number of failures
    /// (non-blocking form: would block).
    fn round(&mut self, work: Work, way: Way, depth: usize) -> (f64, f64, usize) {
        self.place.prepare(work);
        let calls: Vec<Call> = (0..work.count())
            .map(|at| {
                let lane = at % depth;
                let into = &raw mut self.stats[lane];
                self.place.call(work, at, self.pointers[lane], into, way == Way::Promised)
            })
            .collect();
        let (cpu, began) = (process_cpu(), Instant::now());
        let refused = match way {
            Way::Plain | Way::Promised => calls.iter().filter(|call| call.plain() < 0).count(),
            Way::Ring => self.on_ring(&calls, depth),
            Way::Pool => self.on_pool(&calls, depth),
        };
        let (wall, cpu) = (began.elapsed(), process_cpu() - cpu);
        let each = |span: Duration| span.as_secs_f64() * 1e6 / calls.len() as f64;
        (each(wall), each(cpu), refused)
    }

    /// Works like a driver: the call that waits also submits.
    fn on_ring(&mut self, calls: &[Call], depth: usize) -> usize {
        let (mut begun, mut over, mut refused) = (0, 0, 0);
        while over < calls.len() {
            while begun < calls.len() && begun - over < depth {
                let entry = calls[begun].entry().user_data(begun as u64);
                // SAFETY: what a call points to outlives the round, and the round ends with its last
                // completion.
                unsafe { self.ring.submissions().push(entry).unwrap() };
                begun += 1;
            }
            self.ring.submit_and_wait(Wait { completions: 1, ..Wait::default() }).unwrap();
            while let Some(completion) = self.ring.completions().pop() {
                over += 1;
                refused += usize::from(completion.result < 0);
                if let (Call::Open { .. }, 0..) = (calls[completion.user_data as usize], completion.result) {
                    // SAFETY: just opened, and no other code has the number.
                    unsafe { libc::close(completion.result) };
                }
            }
        }
        refused
    }

    fn on_pool(&mut self, calls: &[Call], depth: usize) -> usize {
        self.runtime
            .block_on(async {
                let lanes: Vec<_> = (0..depth)
                    .map(|lane| {
                        let calls: Vec<Call> = calls.iter().skip(lane).step_by(depth).copied().collect();
                        ringroad_engine::spawn(async move {
                            let mut refused = 0;
                            for call in calls {
                                let call = move || {
                                    // Move the whole value to the thread, not the pointers inside.
                                    let call: Call = call;
                                    call.plain()
                                };
                                refused += usize::from(spawn_blocking(call).await.unwrap() < 0);
                            }
                            refused
                        })
                    })
                    .collect();
                let mut refused = 0;
                for lane in lanes {
                    refused += lane.await.unwrap();
                }
                refused
            })
            .unwrap()
    }
}

fn main() {
    let mut words = std::env::args().skip(1);
    let folder = PathBuf::from(words.next().expect("a folder to work in"));
    let rounds: usize = words.next().map_or(5, |word| word.parse().expect("a number of rounds"));
    let flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    let mut ring = Ring::builder(256).flags(flags).build().unwrap();
    ring.limit_workers(4, 4).unwrap();
    // Written once, so that no page fault is measured.
    let mut buffers = vec![vec![1u8; LARGE]; 64];
    let pointers: Vec<*mut u8> = buffers.iter_mut().map(|buffer| buffer.as_mut_ptr()).collect();
    // SAFETY: integers only.
    let stats = vec![unsafe { std::mem::zeroed() }; 64];
    let runtime = Runtime::builder(DriverName::Epoll).build().unwrap();
    let place = Place::new(&folder);
    let mut bench = Bench { place, ring, runtime, pointers, stats };
    println!(
        "{:<16} {:>9} {:>6} {:>28} {:>10} {:>8}",
        "operation", "way", "depth", "wall µs (least, most)", "CPU µs", "refused"
    );
    for work in Work::ALL {
        let mut cells = vec![(Way::Plain, 1)];
        if work.is_promised() {
            cells.push((Way::Promised, 1));
        }
        cells.extend([(Way::Ring, 1), (Way::Pool, 1), (Way::Ring, 64), (Way::Pool, 64)]);
        let mut results = vec![Vec::new(); cells.len()];
        for _ in 0..rounds {
            for (cell, (way, depth)) in cells.iter().enumerate() {
                results[cell].push(bench.round(work, *way, *depth));
            }
        }
        for ((way, depth), mut rounds) in cells.into_iter().zip(results) {
            rounds.sort_by(|one, other| one.0.total_cmp(&other.0));
            let (wall, cpu, refused) = rounds[rounds.len() / 2];
            let (least, most) = (rounds[0].0, rounds[rounds.len() - 1].0);
            let spread = format!("{wall:.2} ({least:.2}, {most:.2})");
            println!(
                "{:<16} {:>9} {depth:>6} {spread:>28} {cpu:>10.2} {refused:>8}",
                work.name(),
                format!("{way:?}").to_lowercase()
            );
        }
    }
    fs::remove_dir_all(&bench.place.folder).unwrap();
}
