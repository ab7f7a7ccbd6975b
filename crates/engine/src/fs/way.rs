//! Decides where a file operation runs. This is the one table, with its implementation.
//!
//! | operation | threads, epoll, poll, select | io_uring | sim |
//! |---|---|---|---|
//! | read: pipe, FIFO, terminal, socket | in place, once readable | the same | driver |
//! | read: character device with positions | pool, once readable | the same | driver |
//! | read: `RWF_NOWAIT` supported | in place if cached, else pool | in place if cached, else ring | driver |
//! | read: file opened with `O_DIRECT` | pool | ring, the first one pool | driver |
//! | read: FUSE | pool | pool | driver |
//! | read, write: file system in memory | in place | in place | driver |
//! | write: pipe, FIFO, socket | in place, once writable | the same | driver |
//! | the same without `RWF_NOWAIT` (Linux 6.1) | pool, once writable | the same | driver |
//! | write: terminal | pool, once writable | ring, once writable | driver |
//! | other writes, open, stat, sync, truncate | pool | ring, else pool | driver |
//! | rename, unlink, mkdir, link, symlink | pool | ring, else pool | driver |
//! | list a directory, read a link | pool | pool | driver |
//! | close | in place | in place | in place |
//!
//! "Once readable", "once writable": after the driver reports that there is data, or room. `RWF_NOWAIT`: the
//! file system promises not to block. A file system in memory, and FUSE, are recognized at the first read.
//! "Ring, else pool": the ring if it has the operation. It cannot list a directory or read a link.
//!
//! The ring reads nothing from FUSE, where it gives wrong bytes ([`ringroad_uring::is_on_fuse`]).
//!
//! A read that waits for a peer waits in the driver and transfers nothing, so dropping it has no effect. (In
//! the pool it would occupy a thread until the peer writes. In the ring it could take bytes after its future
//! was dropped.) A terminal or pipe may be shared with other processes, so its O_NONBLOCK is not changed; the
//! read uses `RWF_NOWAIT` instead. If the kernel does not support that, the pool does the read, and bytes of
//! a dropped read are kept for the next one ([`Request::dispose`]).
//!
//! A write that waits for a peer waits likewise, so dropping it occupies no thread; and it is made in place
//! or in the pool, where the SIGPIPE of a peer that is gone can be taken (`sys/sigpipe.rs`). The ring would
//! raise it on the runtime's thread.
//!
//! Measured costs (docs/results/files.md; reasons and rejected alternatives in docs/adr/0015): a hand-over to
//! a thread and back takes about 50 µs with one operation in flight and 4 to 15 µs with many; a cached read
//! takes 1.3 µs. The ring costs less CPU than the pool for every operation it has, because its completions
//! come in batches. A close takes a third of a microsecond, less than a hand-over. A program that needs its
//! errors calls [`super::File::close`].

use crate::blocking::spawn_blocking;
use crate::exec::{Core, JoinError, yield_now};
use crate::inflight::{Memory, Open, Request};
use crate::io::{Filing, OneShot};
use crate::name::DriverName;
use crate::op::{Kind, Target};
use crate::sys::file::{FileSystem, file_system_of, has_no_positions, kind_of};
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

/// Knowledge about the file system of a file ([`Open::known`]).
const UNKNOWN: u8 = 0;
/// It does not support `RWF_NOWAIT`, and the cause is not known yet.
const UNPROMISING: u8 = 1;
/// Its files are in memory, which can be paged out like the program's own.
const MEMORY: u8 = 2;
/// It does not support `RWF_NOWAIT` and is not in memory: a network file system, an old kernel. Or the
/// promise does not hold for this file ([`expect_direct`]).
const SLOW: u8 = 3;
/// FUSE: only the pool reads.
const FUSE: u8 = 7;

/// Reads are attempted in place: a file with positions, or a directory.
const PROMISING: u8 = 4;
/// A file without positions: a read may wait for a peer.
const STREAM: u8 = 5;
/// A character device with positions: a read may wait for a peer.
const DEVICE: u8 = 6;

/// Knowledge about how to write to a file ([`Open::writes`]); at first `UNKNOWN`.
///
/// A write waits for no peer, as far as is known.
const NO_PEER: u8 = 1;
/// A pipe or a socket: a write may wait for a peer.
const PEER: u8 = 2;
/// A terminal: a write may wait for a peer, and does not support `RWF_NOWAIT`.
const TERMINAL: u8 = 3;
/// A pipe or a socket of a kernel without `RWF_NOWAIT` for them (Linux 6.1): the pool writes.
const OLD_PEER: u8 = 4;

/// Returns how to write to a file. One or two system calls, at its first write.
fn way_of_writes(on: &Open) -> u8 {
    let known = on.writes.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known;
    }
    let known = match kind_of(on.number()) {
        libc::S_IFIFO | libc::S_IFSOCK => PEER,
        libc::S_IFCHR if has_no_positions(on.number()) => TERMINAL,
        _ => NO_PEER,
    };
    on.writes.store(known, Ordering::Relaxed);
    known
}

/// Learns the kind of file from the errno of a read in place.
fn learn_kind(on: &Open, errno: i32) {
    if on.known.load(Ordering::Relaxed) != UNKNOWN {
        return;
    }
    let known = match kind_of(on.number()) {
        _ if errno == libc::ESPIPE => STREAM,
        libc::S_IFIFO | libc::S_IFSOCK => STREAM,
        libc::S_IFCHR => DEVICE,
        _ if errno == libc::EOPNOTSUPP => UNPROMISING,
        _ => PROMISING,
    };
    on.consumes.store(known == STREAM, Ordering::Relaxed);
    on.known.store(known, Ordering::Relaxed);
}

/// Marks a file opened with `O_DIRECT` as never attempted in place. There `RWF_NOWAIT` only avoids waiting
/// for locks and memory; the call still sleeps until the disk has completed (Linux 6.18).
pub(super) fn expect_direct(on: &Open, flags: i32) {
    // A pipe may have the flag too, for packet mode.
    if flags & libc::O_DIRECT != 0 && kind_of(on.number()) != libc::S_IFIFO {
        on.known.store(UNPROMISING, Ordering::Relaxed);
    }
}

/// An attempt that waits for nothing but memory.
enum Try {
    Nothing,
    /// A read with `RWF_NOWAIT`.
    Cached,
    /// The plain system call.
    Plain,
}

fn attempt_of(request: &Request, driver: DriverName) -> Try {
    let (on, reads) = match request {
        Request::Read { on, .. } => (on, true),
        Request::Write { on, .. } => (on, false),
        _ => return Try::Nothing,
    };
    match on.known.load(Ordering::Relaxed) {
        _ if driver == DriverName::Sim => Try::Nothing,
        MEMORY => Try::Plain,
        UNKNOWN | PROMISING if reads => Try::Cached,
        _ => Try::Nothing,
    }
}

/// Does the operation in place if it does not have to wait; returns its result, or its error.
pub(super) async fn attempt(core: &Rc<Core>, request: &mut Request) -> Option<i32> {
    let driver = core.with_io(|io| io.driver_name())?;
    let cached = match attempt_of(request, driver) {
        Try::Nothing => return None,
        Try::Cached => true,
        Try::Plain => false,
    };
    // Yield to other tasks, as with a peer that always has data ready.
    if !core.with_io(|io| io.has_answers_left())? {
        yield_now().await;
    }
    loop {
        match core.with_io(|io| io.attempt_file(request, cached))? {
            errno if errno == -libc::EINTR => {}
            // The data is not cached, or the file has no positions and a read may wait for a peer, or
            // `RWF_NOWAIT` is not supported.
            errno
                if matches!(-errno, libc::EAGAIN | libc::ESPIPE | libc::ENOSYS)
                    || (cached && errno == -libc::EOPNOTSUPP) =>
            {
                if let Request::Read { on, .. } = request {
                    learn_kind(on, -errno);
                }
                return None;
            }
            result => return Some(result),
        }
    }
}

/// Does the operation where it is fastest, and waits. `None` instead of the request: the runtime was shut
/// down meanwhile.
pub(super) async fn perform(core: Rc<Core>, mut request: Request) -> (i32, Option<Request>) {
    let Some((takes, driver)) = core.with_io(|io| (io.takes(&mut request), io.driver_name())) else {
        return (-libc::ECANCELED, Some(request));
    };
    if let Request::Read { on, .. } = &request
        && driver != DriverName::Sim
        && matches!(on.known.load(Ordering::Relaxed), STREAM | DEVICE)
    {
        let on = Arc::clone(on);
        return read_from_peer(core, &on, request).await;
    }
    if let Request::Write { on, .. } = &request
        && driver != DriverName::Sim
        && way_of_writes(on) != NO_PEER
    {
        let on = Arc::clone(on);
        match write_to_peer(&core, &on, &mut request).await {
            Some(result) => return (result, Some(request)),
            // Never the ring, which would raise SIGPIPE on this thread.
            None if on.writes.load(Ordering::Relaxed) != TERMINAL => return on_pool(request).await,
            None => {}
        }
    }
    if takes && (driver == DriverName::Sim || !is_for_the_pool(&request)) {
        let filed = Filed { core: Rc::clone(&core), filing: Filing::Fresh(Box::new(request)) };
        match filed.await {
            // The file was opened elsewhere with O_NONBLOCK: the ring obeys that flag, while a plain call on
            // a regular file ignores it.
            (errno, Some(back)) if errno == -libc::EAGAIN && back.has_file() => request = back,
            over => return over,
        }
    }
    on_pool(request).await
}

/// Reads from a peer: waits in the driver until there is data, and only then reads.
async fn read_from_peer(core: Rc<Core>, on: &Open, mut request: Request) -> (i32, Option<Request>) {
    let has_positions = on.known.load(Ordering::Relaxed) == DEVICE;
    loop {
        // Yield to other tasks: the peer may always have more.
        if core.with_io(|io| io.has_answers_left()) == Some(false) {
            yield_now().await;
        }
        let kept = request.take_unread();
        if kept > 0 {
            return (kept, Some(request));
        }
        let promises = if has_positions {
            false
        } else {
            match core.with_io(|io| io.attempt_stream(&mut request)) {
                None => return (-libc::ECANCELED, Some(request)),
                Some(errno) if errno == -libc::EINTR => continue,
                Some(errno) if matches!(-errno, libc::EOPNOTSUPP | libc::ENOSYS) => false,
                Some(errno) if errno == -libc::EAGAIN => true,
                Some(result) => return (result, Some(request)),
            }
        };
        // If it cannot be watched (it does not support poll(2), select has no bit for its number, or no
        // descriptor is free), the pool waits.
        // A duplicate, because several reads may wait for one file, on several runtimes.
        let readable = match on.fd().try_clone() {
            Ok(duplicate) => readable(&core, duplicate).await,
            Err(why) => -why.raw_os_error().unwrap_or(libc::EMFILE),
        };
        match readable {
            0 if promises => {}
            errno if errno == -libc::ECANCELED => return (errno, Some(request)),
            _ => return on_pool(request).await,
        }
    }
}

/// Writes to a peer: waits in the driver until there is room, and only then writes. `None`: the write is to
/// be made elsewhere, as one that may wait.
async fn write_to_peer(core: &Rc<Core>, on: &Open, request: &mut Request) -> Option<i32> {
    loop {
        // Yield to other tasks: the peer may always have room.
        if core.with_io(|io| io.has_answers_left()) == Some(false) {
            yield_now().await;
        }
        let promises = on.writes.load(Ordering::Relaxed) == PEER;
        if promises {
            match core.with_io(|io| io.attempt_stream(request)) {
                None => return Some(-libc::ECANCELED),
                Some(errno) if errno == -libc::EINTR => continue,
                // An old kernel.
                Some(errno) if matches!(-errno, libc::EOPNOTSUPP | libc::ENOSYS) => {
                    on.writes.store(OLD_PEER, Ordering::Relaxed);
                    continue;
                }
                Some(errno) if errno == -libc::EAGAIN => {}
                Some(result) => return Some(result),
            }
        }
        // If it cannot be watched, the write waits for itself.
        let writable = match on.fd().try_clone() {
            Ok(duplicate) => writable(core, duplicate).await,
            Err(why) => -why.raw_os_error().unwrap_or(libc::EMFILE),
        };
        match writable {
            0 if promises => {}
            errno if errno == -libc::ECANCELED => return Some(errno),
            _ => return None,
        }
    }
}

/// Waits until a read would not block, and returns 0; or a negated errno if the driver cannot watch the file.
/// Closes the duplicate at the end.
pub(crate) async fn readable(core: &Rc<Core>, duplicate: OwnedFd) -> i32 {
    until(Kind::Readable, core, duplicate).await
}

/// Waits until a write would not block; else as [`readable`].
pub(crate) async fn writable(core: &Rc<Core>, duplicate: OwnedFd) -> i32 {
    until(Kind::Writable, core, duplicate).await
}

async fn until(kind: Kind, core: &Rc<Core>, duplicate: OwnedFd) -> i32 {
    let Some(on) = core.with_io(|io| io.watch(duplicate)) else { return -libc::ECANCELED };
    Ready { kind, core: Rc::clone(core), on, operation: OneShot::Fresh(Memory::None) }.await
}

/// A wait in the driver. Dropping it has no effect on the file.
struct Ready {
    kind: Kind,
    core: Rc<Core>,
    on: Target,
    operation: OneShot,
}

impl Future for Ready {
    type Output = i32;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<i32> {
        let Ready { kind, core, on, operation } = &mut *self;
        // The runtime was shut down, or another one polls.
        let polled =
            core.poll_io(context.waker(), |io, caller| io.poll_readiness(*kind, *on, operation, caller));
        polled.unwrap_or(Poll::Ready(-libc::ECANCELED))
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        // Cancels the wait, and then closes the duplicate.
        self.core.with_io(|io| io.close(self.on.index));
    }
}

/// Returns whether the next read must determine the kind of file system.
fn is_to_be_learned(request: &Request) -> bool {
    matches!(request, Request::Read { on, .. } if on.known.load(Ordering::Relaxed) == UNPROMISING)
}

/// Returns whether the next read is one for the pool, also where a ring could make it.
fn is_for_the_pool(request: &Request) -> bool {
    let is_on_fuse = matches!(request, Request::Read { on, .. } if on.known.load(Ordering::Relaxed) == FUSE);
    is_on_fuse || is_to_be_learned(request)
}

/// Determines the kind of file system. The call may wait for a file server, so it runs on a thread of the
/// pool.
fn learn(on: &Open) {
    let known = match file_system_of(on.number()) {
        FileSystem::Memory => MEMORY,
        FileSystem::Fuse => FUSE,
        FileSystem::Other => SLOW,
    };
    on.known.store(known, Ordering::Relaxed);
}

async fn on_pool(request: Request) -> (i32, Option<Request>) {
    let over = Over { result: -libc::ECANCELED, request: Some(request) };
    // Kept outside of the job, so that it is still available if no thread can be started.
    let place = Arc::new(Mutex::new(Some(over)));
    let job = Arc::clone(&place);
    let performed = spawn_blocking(move || {
        let mut over = take(&job)?;
        over.perform();
        Some(over)
    });
    match performed.await {
        Ok(Some(mut over)) => (over.result, over.request.take()),
        Err(JoinError::NoThread(why)) => {
            let errno = why.raw_os_error().unwrap_or(libc::EAGAIN);
            (-errno, take(&place).and_then(|mut over| over.request.take()))
        }
        _ => (-libc::ECANCELED, None),
    }
}

fn take(place: &Mutex<Option<Over>>) -> Option<Over> {
    place.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// A request before or after its execution. Dropping it closes the descriptor of an open.
struct Over {
    result: i32,
    request: Option<Request>,
}

impl Over {
    fn perform(&mut self) {
        let Some(request) = &mut self.request else { return };
        if is_to_be_learned(request)
            && let Request::Read { on, .. } = &*request
        {
            learn(on);
        }
        self.result = loop {
            match request.perform() {
                errno if errno == -libc::EINTR => {}
                result => break result,
            }
        };
    }
}

impl Drop for Over {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            request.dispose(self.result);
        }
    }
}

/// A file operation with the driver.
struct Filed {
    core: Rc<Core>,
    filing: Filing,
}

impl Future for Filed {
    type Output = (i32, Option<Request>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Filed { core, filing } = &mut *self;
        match core.poll_io(context.waker(), |io, caller| io.poll_file(filing, caller)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready((result, request))) => Poll::Ready((result, Some(*request))),
            // The runtime was shut down, or another one polls: the operation is cancelled when this is
            // dropped.
            Err(_) => Poll::Ready((-libc::ECANCELED, None)),
        }
    }
}

impl Drop for Filed {
    fn drop(&mut self) {
        let Filed { core, filing } = self;
        core.with_io(|io| io.drop_file(filing));
    }
}
