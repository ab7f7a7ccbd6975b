//! A file with a latency for reads, which a disk behind a network has and a throttle does not provide.
//!
//! The kernel asks this process for the file's bytes through FUSE, and each read is answered only after a
//! time, any number of them at once. A loop device on such a file, told to pass its requests on as they come
//! (direct I/O), is a disk with that latency, on which a rate may be set besides. Opcodes, sizes and flags
//! are those of `linux/fuse.h`. Start at [`Late::over`].

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::configure_io_flusher_behavior;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Requests that are answered at once, each by a thread that may sleep.
const THREADS: u16 = 64;
/// Bytes of one request at most.
const BYTES_MAX: u32 = 128 << 10;
/// Of a request's and of an answer's header.
const IN_HEADER: usize = 40;
const OUT_HEADER: usize = 16;
/// Of what stands before the bytes of a write.
const WRITE_HEADER: usize = 40;

/// The file, as long as this lives; then it is what it was before.
pub(super) struct Late {
    path: PathBuf,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads have in common.
struct Shared {
    device: File,
    image: File,
    /// What each read waits, nanoseconds.
    delay_ns: AtomicU64,
}

impl Late {
    /// Puts itself over a regular file: a process that opens its path from now on is answered from here.
    ///
    /// # Errors
    /// Why it cannot be had here, as a clause: not root, or no FUSE.
    pub(super) fn over(path: &Path) -> Result<Late, String> {
        let told = |what: &str, error: io::Error| format!("{what}: {error}");
        let both = |path: &Path| OpenOptions::new().read(true).write(true).open(path);
        let image = both(path).map_err(|error| told("open the image", error))?;
        let device = both(Path::new("/dev/fuse")).map_err(|error| told("open /dev/fuse", error))?;
        // The root of a file system may be a file.
        let options = format!("fd={},rootmode=100000,user_id=0,group_id=0", device.as_raw_fd());
        let options = CString::new(options).map_err(|error| told("mount", error.into()))?;
        mount("ringroad", path, "fuse", MountFlags::NOSUID | MountFlags::NODEV, &*options)
            .map_err(|error| told("mount a file of our own", error.into()))?;
        let shared = Arc::new(Shared { device, image, delay_ns: AtomicU64::new(0) });
        // From here on it is unmounted whatever happens.
        let mut late = Late { path: path.to_owned(), shared, threads: Vec::new() };
        for _ in 0..THREADS {
            let shared = Arc::clone(&late.shared);
            let thread = thread::Builder::new().name("late".to_owned()).stack_size(64 << 10);
            let thread =
                thread.spawn(move || shared.serve()).map_err(|error| told("start a thread", error))?;
            late.threads.push(thread);
        }
        Ok(late)
    }

    /// What each read waits from now on.
    pub(super) fn set(&self, delay: Duration) {
        self.shared.delay_ns.store(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        // By force: a process that still waits for an answer gets an error, and the threads see that it is
        // over. Fails only if it is over already.
        let _ = unmount(&self.path, UnmountFlags::FORCE | UnmountFlags::DETACH);
        for thread in self.threads.drain(..) {
            // It cannot have panicked: it reads, writes and sleeps.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Answers requests until the file is unmounted.
    fn serve(&self) {
        // The kernel's writing out of other files may wait for us: then we must not wait for it. Only root
        // may say so, and only root gets here; where it fails nothing but that safety is lost.
        let _ = configure_io_flusher_behavior(true);
        let mut request = vec![0; BYTES_MAX as usize + 4096];
        loop {
            let length = match (&self.device).read(&mut request) {
                Ok(length) => length,
                // ENOENT: what was to be read has been taken back.
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
                    _ => return,
                },
            };
            if let Some(reply) = request.get(..length).and_then(|request| self.answer(request)) {
                // Fails if no process waits for it any more.
                let _ = (&self.device).write(&reply);
            }
        }
    }

    /// Returns the whole reply to a request; `None` where none is wanted.
    fn answer(&self, request: &[u8]) -> Option<Vec<u8>> {
        let (opcode, unique) = (u32_at(request, 4)?, u64_at(request, 8)?);
        let body = request.get(IN_HEADER..)?;
        let mut reply = vec![0; OUT_HEADER];
        let outcome = match opcode {
            opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => return None,
            opcode::INIT => init(body, &mut reply),
            opcode::GETATTR => self.attributes(&mut reply),
            opcode::OPEN => {
                // No handle, nothing special.
                reply.extend([0; 16]);
                Ok(())
            }
            opcode::READ => self.read(body, &mut reply),
            opcode::WRITE => self.write(body, &mut reply),
            opcode::FSYNC => self.image.sync_data(),
            opcode::FLUSH | opcode::RELEASE | opcode::DESTROY => Ok(()),
            opcode::STATFS => {
                reply.extend([0; 80]);
                Ok(())
            }
            _ => Err(Errno::NOSYS.into()),
        };
        let error = match outcome {
            Ok(()) => 0,
            Err(error) => {
                reply.truncate(OUT_HEADER);
                -error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())
            }
        };
        let length = u32::try_from(reply.len()).ok()?;
        reply.get_mut(..OUT_HEADER)?.copy_from_slice(
            &[&length.to_le_bytes()[..], &error.to_le_bytes(), &unique.to_le_bytes()].concat(),
        );
        Some(reply)
    }

    fn attributes(&self, reply: &mut Vec<u8>) -> io::Result<()> {
        const VALID_S: u64 = 3600;
        const MODE: u32 = 0o100_600;
        let bytes = self.image.metadata()?.len();
        for word in [VALID_S, 0, 1, bytes, bytes.div_ceil(512), 0, 0, 0] {
            reply.extend(word.to_le_bytes());
        }
        // Nanoseconds of three times, mode, links, owner, group, device, block size, flags.
        for word in [0, 0, 0, MODE, 1, 0, 0, 0, 4096, 0] {
            reply.extend(word.to_le_bytes());
        }
        Ok(())
    }

    fn read(&self, body: &[u8], reply: &mut Vec<u8>) -> io::Result<()> {
        let until = Instant::now() + Duration::from_nanos(self.delay_ns.load(Ordering::Relaxed));
        let (Some(offset), Some(bytes)) = (u64_at(body, 8), u32_at(body, 16)) else {
            return Err(Errno::INVAL.into());
        };
        reply.resize(OUT_HEADER + bytes.min(BYTES_MAX) as usize, 0);
        let mut filled = OUT_HEADER;
        while let Some(rest) = reply.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.image.read_at(rest, offset + (filled - OUT_HEADER) as u64)? {
                0 => break,
                more => filled += more,
            }
        }
        reply.truncate(filled);
        thread::sleep(until.saturating_duration_since(Instant::now()));
        Ok(())
    }

    fn write(&self, body: &[u8], reply: &mut Vec<u8>) -> io::Result<()> {
        let (Some(offset), Some(bytes)) = (u64_at(body, 8), u32_at(body, 16)) else {
            return Err(Errno::INVAL.into());
        };
        let data =
            body.get(WRITE_HEADER..).and_then(|data| data.get(..bytes as usize)).ok_or(Errno::INVAL)?;
        self.image.write_all_at(data, offset)?;
        reply.extend(bytes.to_le_bytes());
        reply.extend([0; 4]);
        Ok(())
    }
}

/// The requests there are for a file that is there and stays as large as it is.
mod opcode {
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const BATCH_FORGET: u32 = 42;
}

/// Agrees on version 7.31 and on direct I/O that does not wait for the answer.
fn init(body: &[u8], reply: &mut Vec<u8>) -> io::Result<()> {
    const ASYNC_READ: u32 = 1;
    const BIG_WRITES: u32 = 1 << 5;
    const ASYNC_DIO: u32 = 1 << 15;
    const MAX_PAGES: u32 = 1 << 22;
    let (Some(7), Some(read_ahead), Some(offered)) = (u32_at(body, 0), u32_at(body, 8), u32_at(body, 12))
    else {
        return Err(Errno::PROTO.into());
    };
    let flags = offered & (ASYNC_READ | BIG_WRITES | ASYNC_DIO | MAX_PAGES);
    for word in [7, 31, read_ahead, flags] {
        reply.extend(word.to_le_bytes());
    }
    // Requests in the background, and from how many on there is a jam.
    for half in [THREADS, THREADS] {
        reply.extend(half.to_le_bytes());
    }
    // Bytes of a write, nanoseconds of a time.
    for word in [BYTES_MAX, 1] {
        reply.extend(word.to_le_bytes());
    }
    // Pages of a request; all else is nothing.
    reply.extend(((BYTES_MAX / 4096) as u16).to_le_bytes());
    reply.resize(OUT_HEADER + 64, 0);
    Ok(())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().map(u32::from_le_bytes).ok()
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().map(u64::from_le_bytes).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustix::fs::OFlags;
    use std::fs;
    use std::os::unix::fs::OpenOptionsExt;

    #[test]
    fn the_file_is_what_it_was_read_and_written_and_its_reads_can_be_made_to_wait() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let mut content: Vec<u8> = (0..3 * BYTES_MAX + 777).map(|at| (at * 31 + at / 251) as u8).collect();
        fs::write(&path, &content).unwrap();
        let late = match Late::over(&path) {
            Ok(late) => late,
            Err(why) => {
                eprintln!("skipped: no file of our own can be had here: {why}");
                return;
            }
        };
        assert!(fs::read(&path).unwrap() == content);
        let delay = Duration::from_millis(20);
        late.set(delay);
        // As the loop device reads: what was read before may be cached still.
        let flags = OFlags::DIRECT.bits().cast_signed();
        let direct = OpenOptions::new().read(true).custom_flags(flags).open(&path).unwrap();
        let mut piece = vec![0; 5000];
        let begun = Instant::now();
        direct.read_exact_at(&mut piece, 100_000).unwrap();
        assert!(begun.elapsed() >= delay, "it did not wait: {:?}", begun.elapsed());
        assert!(piece == content[100_000..105_000]);
        drop(direct);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[7; 200_000], 50_000).unwrap();
        file.sync_all().unwrap();
        content[50_000..250_000].fill(7);
        drop(file);
        drop(late);
        assert!(fs::read(&path).unwrap() == content, "what was written through it is in the file");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_no_request_gets_no_answer_and_what_is_unknown_is_said_to_be() {
        let file = || tempfile::tempfile().unwrap();
        let shared = Shared { device: file(), image: file(), delay_ns: AtomicU64::new(0) };
        assert!(shared.answer(b"short").is_none());
        let request = |opcode: u32, body: &[u8]| {
            let mut bytes = vec![0; IN_HEADER];
            bytes[4..8].copy_from_slice(&opcode.to_le_bytes());
            bytes[8..16].copy_from_slice(&77_u64.to_le_bytes());
            [bytes, body.to_vec()].concat()
        };
        let error = |reply: Vec<u8>| {
            assert_eq!((u32_at(&reply, 0), u64_at(&reply, 8)), (Some(16), Some(77)));
            -(u32_at(&reply, 4).unwrap() as i32)
        };
        assert_eq!(error(shared.answer(&request(999, &[])).unwrap()), Errno::NOSYS.raw_os_error());
        assert_eq!(
            error(shared.answer(&request(opcode::READ, &[0; 3])).unwrap()),
            Errno::INVAL.raw_os_error()
        );
        // More bytes are announced than come.
        let body = [[0; 16], [200; 16]].concat();
        assert_eq!(
            error(shared.answer(&request(opcode::WRITE, &body)).unwrap()),
            Errno::INVAL.raw_os_error()
        );
        assert!(shared.answer(&request(opcode::FORGET, &[0; 8])).is_none());
    }
}
