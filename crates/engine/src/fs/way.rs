//! Where an operation on a file is done. The one table of that, and its machinery.
//!
//! | what | threads, epoll, poll, select | io_uring | sim |
//! |---|---|---|---|
//! | read, of a file system that promises not to block (`RWF_NOWAIT`) | in place if it is cached, else the pool | in place if it is cached, else the ring | driver |
//! | read, of a file opened with `O_DIRECT` | the pool | the ring | driver |
//! | read and write, of a file system in memory, once a read has told that it is one | in place | in place | driver |
//! | write; open, stat, sync, truncate, rename, unlink, mkdir, link, symlink | the pool | the ring if it has the operation, else the pool | driver |
//! | list a directory, read a link | the pool | the pool: the ring has neither | driver |
//! | close | in place | in place | in place |
//!
//! By measurement (docs/results/files.md; reasons and what was not taken: docs/adr/0015): a hand-over to a thread
//! and back costs some 50 µs when one operation is under way and 4 to 15 when there are many, a cached read 1.3; the
//! ring costs less CPU than the pool for every operation it has, because its results come in batches. Closing takes a
//! third of a microsecond, less than handing it to anybody; who wants to hear its errors calls [`super::File::close`].

use crate::blocking::spawn_blocking;
use crate::exec::{Core, JoinError, yield_now};
use crate::inflight::{Open, Request};
use crate::io::Filing;
use crate::name::Name;
use crate::sys::file::is_in_memory;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

/// What is known of a file system, by the file that lies there ([`Open::known`]).
const UNKNOWN: u8 = 0;
/// It makes no promises, and nobody has looked why.
const UNPROMISING: u8 = 1;
/// Its files are memory that the kernel may page out, no less and no more than the program's own.
const MEMORY: u8 = 2;
/// It makes no promises, and is no memory: a network, a user's program, an old kernel. Or they do not hold for this file
/// ([`expect_direct`]).
const SLOW: u8 = 3;

/// A file opened with `O_DIRECT` is never tried in place: to `RWF_NOWAIT` its file system promises to wait for no lock and
/// no memory, and then the call sleeps until the disk has answered (Linux 6.18; preadv2 is no asynchronous I/O).
pub(super) fn expect_direct(on: &Open, flags: i32) {
    if flags & libc::O_DIRECT != 0 {
        on.known.store(SLOW, Ordering::Relaxed);
    }
}

/// What may be tried at once, without waiting for anything but memory.
enum Try {
    Nothing,
    /// Under the kernel's promise.
    Cached,
    /// The plain call.
    Plain,
}

fn attempt_of(request: &Request, driver: Name) -> Try {
    let (on, reads) = match request {
        Request::Read { on, .. } => (on, true),
        Request::Write { on, .. } => (on, false),
        _ => return Try::Nothing,
    };
    match on.known.load(Ordering::Relaxed) {
        _ if driver == Name::Sim => Try::Nothing,
        MEMORY => Try::Plain,
        UNKNOWN if reads => Try::Cached,
        _ => Try::Nothing,
    }
}

/// Does it here if that takes no waiting: what it came to, an error of its own included.
pub(super) async fn attempt(core: &Rc<Core>, request: &mut Request) -> Option<i32> {
    let driver = core.with_io(|io| io.driver_name())?;
    let cached = match attempt_of(request, driver) {
        Try::Nothing => return None,
        Try::Cached => true,
        Try::Plain => false,
    };
    // As with a peer that always has data ready: others get their turn.
    if !core.with_io(|io| io.has_answers_left())? {
        yield_now().await;
    }
    loop {
        match core.with_io(|io| io.attempt_file(request, cached))? {
            errno if errno == -libc::EINTR => {}
            errno if cached && errno == -libc::EOPNOTSUPP => {
                if let Request::Read { on, .. } = request {
                    on.known.store(UNPROMISING, Ordering::Relaxed);
                }
                return None;
            }
            // It is on the disk; or it has no positions, and may wait for a peer.
            errno if matches!(-errno, libc::EAGAIN | libc::ESPIPE | libc::ENOSYS) => return None,
            result => return Some(result),
        }
    }
}

/// Does it where it is fastest, and waits. `None` instead of the request: the runtime was shut down meanwhile, and what
/// the kernel had is gone with it.
pub(super) async fn perform(core: Rc<Core>, mut request: Request) -> (i32, Option<Request>) {
    let Some(takes) = core.with_io(|io| io.takes(&mut request)) else {
        return (-libc::ECANCELED, Some(request));
    };
    if takes && !is_to_be_learned(&request) {
        let filed = Filed { core: Rc::clone(&core), filing: Filing::Fresh(Box::new(request)) };
        match filed.await {
            // A file that was opened elsewhere, and is not to wait (O_NONBLOCK): the ring takes that literally, where
            // a plain call on a file of a disk does not.
            (errno, Some(back)) if errno == -libc::EAGAIN && back.has_file() => request = back,
            over => return over,
        }
    }
    on_pool(request).await
}

/// Whether the next read is to find out what kind of file system this is.
fn is_to_be_learned(request: &Request) -> bool {
    matches!(request, Request::Read { on, .. } if on.known.load(Ordering::Relaxed) == UNPROMISING)
}

/// Asking is itself something that may wait (for a file server), so it is done where that hurts nobody.
fn learn(on: &Open) {
    let known = if is_in_memory(on.number()) { MEMORY } else { SLOW };
    on.known.store(known, Ordering::Relaxed);
}

async fn on_pool(request: Request) -> (i32, Option<Request>) {
    let over = Over { result: -libc::ECANCELED, request: Some(request) };
    // Not in the job itself: so it is still here if there is no thread.
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

/// A request that was or is to be performed. Dropped with it, what an open brought is closed: its future is gone.
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

/// An operation with the driver.
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
            // The runtime is gone, or another one polls: then it is cancelled when this is dropped.
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
