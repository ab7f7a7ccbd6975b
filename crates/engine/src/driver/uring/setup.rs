//! Creates the ring: its set-up flags, the features the kernel must have, and a trial.
//!
//! Features are probed, never derived from the version: a kernel may be patched, and a sandbox may deny
//! calls. An error names what is missing.

use super::file::Files;
use super::{Abilities, GROUP, Shared};
use crate::driver::features::ZeroCopy;
use crate::driver::{DriverName, Settings};
use crate::pool::Pool;
use crate::sys::check;
use crate::{Error, Result};
use ringroad_uring::abi::setup::*;
use ringroad_uring::abi::{
    IORING_FEAT_CQE_SKIP, IORING_FEAT_EXT_ARG, IORING_FEAT_FAST_POLL, IORING_FEAT_NO_IOWAIT,
    IORING_FEAT_NODROP, IORING_FEAT_RECVSEND_BUNDLE, io_uring_op,
};
use ringroad_uring::{BufferRing, Cqe, Probe, Ring, SetupError, Sqe, Wait};
use std::cell::UnsafeCell;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The smallest number of submission entries to try when locked memory is short.
pub(crate) const ENTRIES_MIN: u32 = 64;

/// Set-up flags of a ring. SUBMIT_ALL: a refused entry does not stop the submission of later ones.
pub(crate) const SETUP_FLAGS: u32 =
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL;

/// Maximum number of kernel workers for operations that cannot be polled: most file operations. No socket
/// operation of this driver needs one (`direct.rs` avoids IORING_OP_SHUTDOWN for that reason).
const WORKERS_MAX: u32 = 4;

/// How long the trial may wait before the ring counts as unusable. The kernel answers at once, or, on a
/// machine that pauses, later.
const TRIAL_PATIENCE: Duration = Duration::from_secs(5);

/// Required feature bits, with their names in io_uring_setup(2).
const FEATURES: [(u32, &str); 4] = [
    (IORING_FEAT_NODROP, "IORING_FEAT_NODROP"),
    (IORING_FEAT_FAST_POLL, "IORING_FEAT_FAST_POLL"),
    (IORING_FEAT_EXT_ARG, "IORING_FEAT_EXT_ARG"),
    (IORING_FEAT_CQE_SKIP, "IORING_FEAT_CQE_SKIP"),
];

const OPERATIONS: [(io_uring_op, &str); 8] = [
    (io_uring_op::IORING_OP_ACCEPT, "IORING_OP_ACCEPT"),
    (io_uring_op::IORING_OP_CONNECT, "IORING_OP_CONNECT"),
    (io_uring_op::IORING_OP_RECV, "IORING_OP_RECV"),
    (io_uring_op::IORING_OP_SEND, "IORING_OP_SEND"),
    (io_uring_op::IORING_OP_SENDMSG, "IORING_OP_SENDMSG"),
    (io_uring_op::IORING_OP_RECVMSG, "IORING_OP_RECVMSG"),
    (io_uring_op::IORING_OP_READ, "IORING_OP_READ"),
    (io_uring_op::IORING_OP_ASYNC_CANCEL, "IORING_OP_ASYNC_CANCEL"),
];

/// Creates a ring that has passed the trial, with its buffers offered, and returns its optional features.
pub(super) fn make(settings: &Settings) -> Result<(Shared, Abilities)> {
    let (mut ring, known, mut buffers) = make_ring(settings)?;
    try_out(&mut ring, &mut buffers)?;
    if settings.features.registered_ring {
        // A thread can register sixteen rings. Further rings work without it, a little slower.
        let _ = ring.register_ring_fd();
    }
    ring.limit_workers(WORKERS_MAX, WORKERS_MAX).map_err(|why| failed("io_uring_register", why))?;
    // SAFETY: eventfd(2) takes numbers only. Blocking: a *read* of a non-blocking file does not wait in
    // io_uring.
    let alarm =
        check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) }).map_err(|why| failed("eventfd", why))?;
    // SAFETY: just opened, and no other code has the number.
    let alarm = unsafe { OwnedFd::from_raw_fd(alarm) };
    let has = |bit| ring.features().has(bit);
    let abilities = Abilities {
        multishot_accept: settings.features.multishot_accept,
        no_iowait: settings.features.no_iowait && has(IORING_FEAT_NO_IOWAIT),
        bundles: settings.features.bundles && has(IORING_FEAT_RECVSEND_BUNDLE),
        files: if settings.features.files { Files::of(&known) } else { Files::default() },
        // The first such send shows whether the kernel can report copies.
        zero_copy: match known.supports(io_uring_op::IORING_OP_SEND_ZC as u8) {
            true => settings.features.zero_copy,
            false => ZeroCopy::Off,
        },
    };
    let shared = Shared {
        ring,
        table: None,
        pool: Pool::of_ring(buffers),
        alarm: Arc::new(alarm),
        alarm_count: Box::new(UnsafeCell::new(0)),
    };
    Ok((shared, abilities))
}

/// The kernel counts the memory of a ring that was closed for a while longer: of the trial's, and of those of
/// a process that has just ended. So a ring that finds no memory is made again, so often and after such
/// pauses.
const WAITS_FOR_MEMORY: u32 = 5;
const MEMORY_COMES_BACK: Duration = Duration::from_millis(20);

/// Creates a ring with the requested number of entries, or as many as locked memory allows, and the buffers.
fn make_ring(settings: &Settings) -> Result<(Ring, Probe, BufferRing)> {
    let mut entries = settings.entries.max(1);
    let mut completions = settings.completions.unwrap_or(entries.saturating_mul(4));
    let mut waits = WAITS_FOR_MEMORY;
    loop {
        match make_parts(settings, entries, completions) {
            Err(why) if why.raw_os_error() == Some(libc::ENOMEM) && waits > 0 => {
                waits -= 1;
                thread::sleep(MEMORY_COMES_BACK);
            }
            Err(why) if why.raw_os_error() == Some(libc::ENOMEM) && entries / 2 >= ENTRIES_MIN => {
                entries /= 2;
                completions /= 2;
            }
            made => return made,
        }
    }
}

fn make_parts(settings: &Settings, entries: u32, completions: u32) -> Result<(Ring, Probe, BufferRing)> {
    let ring = build(entries, completions).map_err(|why| {
        let hint = hint_for(&why.source);
        failed("io_uring_setup", why.source).hint(hint)
    })?;
    let known = probe(&ring)?;
    let buffers = make_buffers(&ring, settings)?;
    Ok((ring, known, buffers))
}

pub(crate) fn build(entries: u32, completions: u32) -> std::result::Result<Ring, SetupError> {
    let build =
        |flags| Ring::builder(entries).completion_entries(completions.max(entries)).flags(flags).build();
    // NO_SQARRAY (Linux 6.6) saves an indirection per entry.
    match build(SETUP_FLAGS | IORING_SETUP_NO_SQARRAY) {
        Err(why) if is(&why.source, libc::EINVAL) => build(SETUP_FLAGS),
        answer => answer,
    }
}

const FORBIDDEN: &str =
    "forbidden by the sysctl kernel.io_uring_disabled or by a seccomp filter; the driver epoll works";

/// Returns the hint for a refused set-up.
fn hint_for(why: &io::Error) -> &'static str {
    match why.raw_os_error() {
        Some(libc::ENOSYS) => {
            "no io_uring in this kernel, or a seccomp filter hides it; the driver epoll works"
        }
        Some(libc::EPERM) => FORBIDDEN,
        Some(libc::EINVAL) => {
            "this kernel lacks SINGLE_ISSUER or DEFER_TASKRUN, which Linux 6.1 has; the driver epoll works"
        }
        Some(libc::ENOMEM) => {
            "more locked memory than allowed: raise RLIMIT_MEMLOCK, or use the driver epoll"
        }
        Some(libc::EMFILE | libc::ENFILE) => "no descriptor is left: raise RLIMIT_NOFILE",
        _ => "the driver epoll needs no io_uring",
    }
}

/// Probes the operations of the kernel; an error names what is missing.
fn probe(ring: &Ring) -> Result<Probe> {
    let known = Probe::of(ring).map_err(|why| failed("io_uring_register", why))?;
    lacks(missing(ring.features(), |opcode| known.supports(opcode)))?;
    Ok(known)
}

/// Returns the features and operations that this driver needs and the kernel does not report.
pub(crate) fn missing(
    features: ringroad_uring::Features,
    supports: impl Fn(u8) -> bool,
) -> Vec<&'static str> {
    let features = FEATURES.iter().filter(|(bit, _)| !features.has(*bit)).map(|(_, name)| *name);
    let operations = OPERATIONS.iter().filter(|(op, _)| !supports(*op as u8)).map(|(_, name)| *name);
    features.chain(operations).collect()
}

fn lacks(missing: Vec<&str>) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let why = format!("this kernel's io_uring lacks {}", missing.join(", "));
    let why = io::Error::new(io::ErrorKind::Unsupported, why);
    Err(failed("io_uring_setup", why).hint("Linux 6.1 has what is needed; the driver epoll works"))
}

fn make_buffers(ring: &Ring, settings: &Settings) -> Result<BufferRing> {
    let bytes = u32::try_from(settings.buffer_bytes).unwrap_or(u32::MAX);
    BufferRing::new(ring, GROUP, settings.buffers, bytes).map_err(|why| {
        if is(&why, libc::EINVAL) {
            let missing = lacks(vec!["buffer rings"]);
            return missing.err().unwrap_or_else(|| failed("io_uring_register", why));
        }
        let hint = hint_for(&why);
        failed("io_uring_register", why)
            .on(format!("{} buffers of {bytes} bytes", settings.buffers))
            .hint(hint)
    })
}

/// Receives a byte with a multishot receive, and cancels the receive. A filter may allow io_uring_setup and
/// deny io_uring_enter, and no feature bit shows whether receives can be multishot. Runs for every runtime,
/// because filters are per thread.
fn try_out(ring: &mut Ring, buffers: &mut BufferRing) -> Result<()> {
    const STANDING: u64 = 1;
    const CANCEL: u64 = 2;
    let on_pair = |why| failed("socketpair", why);
    let (mut writer, reader) = UnixStream::pair().map_err(on_pair)?;
    writer.write_all(b"!").map_err(on_pair)?;
    let entered = |why| failed("io_uring_enter", why).hint(FORBIDDEN);
    let mut exchange = |entry: Sqe, count: u32| -> Result<Vec<Cqe>> {
        // SAFETY: names no memory but the group's buffers. If the trial fails and the receive stays armed,
        // the kernel selects none of them after `BufferRing` is dropped.
        unsafe { ring.submissions().push(entry) }.map_err(|why| entered(io::Error::other(why)))?;
        let timeout = Some(TRIAL_PATIENCE);
        // A signal ends the wait but not the trial.
        loop {
            match ring.submit_and_wait(Wait { completions: count, timeout, ..Wait::default() }) {
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                answer => {
                    answer.map_err(entered)?;
                    break;
                }
            }
        }
        let mut answers = Vec::new();
        while let Some(completion) = ring.completions().pop() {
            // SAFETY: a completion of this ring, popped once; its only receive selects from this group.
            if let Some((id, _)) = unsafe { buffers.take(&completion) } {
                buffers.give_back(id);
            }
            answers.push(completion);
        }
        Ok(answers)
    };
    let begun = exchange(Sqe::recv_multishot(reader.as_raw_fd(), GROUP).user_data(STANDING), 1)?;
    let stands =
        begun.iter().any(|answer| answer.result == 1 && answer.more() && answer.buffer_id().is_some());
    if !stands {
        return lacks(vec!["multishot receive (IORING_RECV_MULTISHOT)"]);
    }
    // Linux 6.1 selects the next buffer immediately: with the only one taken, the receive has already ended.
    let over = |answer: &Cqe| {
        let result = answer.result == -libc::ECANCELED || answer.result == -libc::ENOBUFS;
        answer.user_data == STANDING && result && !answer.more()
    };
    if begun.iter().any(over) {
        return Ok(());
    }
    let ended = exchange(Sqe::cancel(STANDING).user_data(CANCEL), 2)?;
    if ended.iter().any(over) { Ok(()) } else { lacks(vec!["a cancel that ends a multishot receive"]) }
}

pub(super) fn failed(call: &'static str, why: io::Error) -> Error {
    Error::new(call, why).by(DriverName::IoUring)
}

fn is(why: &io::Error, errno: i32) -> bool {
    why.raw_os_error() == Some(errno)
}
