//! `threads`: a thread for each connection, which simply waits in `recv` and `send`.
//!
//! The kernel's scheduler does what the other models do themselves, and the program is the shortest of all.
//! The price is a stack per connection and a switch of threads per message. Here a stack is 64 KiB of address
//! space, of which a few pages are touched.
//!
//! The calling thread takes connections. It also keeps a roll of the sockets in use, for one purpose: a
//! thread blocked in `recv` cannot see the stop request, but shutting its socket down wakes it.
//!
//! Start at [`run`]; a connection's life is [`serve`].

use super::accept::Acceptor;
use super::slab::{Slab, Token};
use super::socket::{self, check};
use super::{Counters, Notice, Site, Worker};
use crate::protocol::{End, LINGER_BYTES_MAX, Protocol, Session};
use crate::{Error, Options, Result, Stop};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A connection's thread keeps its buffer on the heap and calls nothing deep.
const STACK_BYTES: usize = 64 * 1024;

/// Serves until `stop` is requested and every thread has ended.
pub(super) fn run(site: Site, stop: &Stop) -> Result<Counters> {
    let Site { listener, protocol, options } = site;
    let mut counters = Counters::default();
    let crowd = Crowd {
        protocol,
        options,
        // Once for all: what it measures is the machine.
        worker: Worker { buffer: Vec::new(), ..Worker::new(&options) },
        stop: stop.as_fd(),
        freed: eventfd(&mut counters)?,
        parked: AtomicBool::new(false),
        roll: Mutex::new(Roll { sockets: Slab::new(), ended: Counters::default() }),
    };
    // Blocking sockets: accept4 gives them the flags asked for here, not the listener's.
    let mut acceptor = Acceptor::new(listener, 0);
    // The scope ends when the last thread has.
    let outcome = thread::scope(|scope| {
        let outcome = crowd.accept_until_stopped(scope, &mut acceptor, &mut counters);
        for socket in crowd.roll().sockets.values() {
            // SAFETY: a thread takes its number off the roll, under the lock held here, before it closes the
            // descriptor: every number on the roll is open.
            let socket = unsafe { BorrowedFd::borrow_raw(*socket) };
            socket::shutdown(socket, libc::SHUT_RDWR, &mut counters);
        }
        outcome
    });
    outcome?;
    socket::close(acceptor.listener, &mut counters);
    counters.add(&crowd.roll().ended);
    socket::close(crowd.freed, &mut counters);
    Ok(counters)
}

/// What all threads share.
struct Crowd<'a> {
    protocol: Protocol,
    options: Options,
    /// What each thread starts from; its buffer is empty.
    worker: Worker,
    stop: BorrowedFd<'a>,
    /// Wakes the accepting thread when it is parked and a connection has closed.
    freed: OwnedFd,
    parked: AtomicBool,
    roll: Mutex<Roll>,
}

/// The connections that are open, and the counts of those that have ended.
struct Roll {
    sockets: Slab<RawFd>,
    ended: Counters,
}

impl Crowd<'_> {
    fn roll(&self) -> MutexGuard<'_, Roll> {
        // A panic elsewhere leaves the roll whole: each change to it is one call that cannot panic half-way.
        self.roll.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept_until_stopped<'scope, 'env>(
        &'env self,
        scope: &'scope thread::Scope<'scope, 'env>,
        acceptor: &mut Acceptor,
        counters: &mut Counters,
    ) -> Result<()> {
        let mut notice = Notice::default();
        loop {
            let listener = if acceptor.is_open() { acceptor.listener.as_raw_fd() } else { -1 };
            // Set before the wait, so that a connection closing from here on is heard; one that closed just
            // before costs one wait of `PARKED_FOR`. Pairs with the swap in `leave`.
            self.parked.store(listener < 0, Ordering::SeqCst);
            let mut set = [self.stop.as_raw_fd(), listener, self.freed.as_raw_fd()].map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            });
            socket::poll(&mut set, acceptor.timeout(), counters).map_err(|why| Error::new("poll", why))?;
            let [stop, listener, freed] = set.map(|entry| entry.revents != 0);
            if stop {
                return Ok(());
            }
            if freed {
                drain(&self.freed, counters);
                acceptor.unpark();
            }
            if listener && let Some(socket) = acceptor.next(counters)? {
                self.enter(scope, socket, counters, &mut notice);
            }
        }
    }

    /// Starts the connection's thread.
    fn enter<'scope, 'env>(
        &'env self,
        scope: &'scope thread::Scope<'scope, 'env>,
        socket: OwnedFd,
        counters: &mut Counters,
        notice: &mut Notice,
    ) {
        let token = self.roll().sockets.insert(socket.as_raw_fd());
        let started = thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, move || self.live(socket, token));
        match started {
            Ok(_) => counters.accepted += 1,
            Err(why) => {
                // The socket went with the closure, which was dropped: that was the close. Only this thread
                // reads the numbers on the roll, so none is used between that and the removal.
                counters.syscalls += 1;
                self.roll().sockets.remove(token);
                counters.refused += 1;
                notice.once(|| {
                    format!(
                        "starting a thread, on a new connection: {why}; it was closed, and others like it will be \
                         without a word (threads are limited by ulimit -u, the cgroup's pids.max and vm.max_map_count)"
                    )
                });
            }
        }
    }

    /// A connection's thread from start to end.
    fn live(&self, socket: OwnedFd, token: Token) {
        let mut worker = Worker { buffer: vec![0; self.options.buffer_bytes], ..self.worker.clone() };
        // Every error ends this connection and concerns no other one.
        let _ = serve(&socket, self, &mut worker);
        // Off the roll first: see the shutdown in `run`.
        self.roll().sockets.remove(token);
        socket::close(socket, &mut worker.counters);
        if self.parked.swap(false, Ordering::SeqCst) {
            wake(&self.freed, &mut worker.counters);
        }
        self.roll().ended.add(&worker.counters);
    }
}

/// Receives and answers until the peer ends, an answer closes, or the socket is shut down under it.
fn serve(socket: &OwnedFd, crowd: &Crowd<'_>, worker: &mut Worker) -> io::Result<()> {
    let Worker { buffer, counters, work, .. } = worker;
    let mut session = Session::new(crowd.protocol);
    loop {
        let bytes = recv(socket, buffer, counters)?;
        if bytes == 0 {
            return Ok(());
        }
        let mut input = buffer.get(..bytes).unwrap_or_default();
        let mut waited = false;
        while let Some(reply) = session.next(&mut input) {
            work.perform(reply.portions);
            if !crowd.options.delay.is_zero() && !waited {
                waited = true;
                if sleep(crowd.options.delay, crowd.stop, counters)? {
                    return Ok(());
                }
            }
            send_all(socket, reply.bytes, counters)?;
            counters.requests += u64::from(reply.requests);
            match reply.end {
                End::Open => {}
                End::Close => return Ok(()),
                End::Linger => {
                    socket::shutdown(socket.as_fd(), libc::SHUT_WR, counters);
                    return discard(socket, buffer, counters);
                }
            }
        }
    }
}

fn recv(socket: &OwnedFd, buffer: &mut [u8], counters: &mut Counters) -> io::Result<usize> {
    loop {
        match socket::recv(socket, buffer, counters) {
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}

fn send_all(socket: &OwnedFd, mut bytes: &[u8], counters: &mut Counters) -> io::Result<()> {
    // A blocking send is short only if a signal comes in between.
    while !bytes.is_empty() {
        match socket::send(socket, bytes, counters) {
            Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

/// Reads to the peer's end, within bounds.
fn discard(socket: &OwnedFd, buffer: &mut [u8], counters: &mut Counters) -> io::Result<()> {
    let mut left = LINGER_BYTES_MAX as usize;
    loop {
        let bytes = recv(socket, buffer, counters)?;
        match left.checked_sub(bytes) {
            Some(less) if bytes > 0 => left = less,
            _ => return Ok(()),
        }
    }
}

/// Sleeps; `true` if stop was requested meanwhile. A signal ends the sleep early, which costs exactness once.
fn sleep(time: Duration, stop: BorrowedFd<'_>, counters: &mut Counters) -> io::Result<bool> {
    let mut set = [libc::pollfd { fd: stop.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    Ok(socket::poll(&mut set, Some(time), counters)? > 0)
}

/// Returns a counter in the kernel by which one thread wakes another out of `poll`.
fn eventfd(counters: &mut Counters) -> Result<OwnedFd> {
    counters.syscalls += 1;
    // SAFETY: eventfd(2) takes numbers only.
    let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
        .map_err(|why| Error::new("eventfd", why))?;
    // SAFETY: eventfd succeeded: the number is open, new, and known to no other code.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn wake(eventfd: &OwnedFd, counters: &mut Counters) {
    counters.syscalls += 1;
    let one = 1u64;
    // SAFETY: eight readable bytes in this frame, only read, during the call. It cannot fail: the counter is
    // below its maximum, since the reader empties it.
    unsafe { libc::write(eventfd.as_raw_fd(), (&raw const one).cast(), 8) };
}

fn drain(eventfd: &OwnedFd, counters: &mut Counters) {
    counters.syscalls += 1;
    let mut value = 0u64;
    // SAFETY: eight writable bytes in this frame, written only during the call. EAGAIN (empty) is as good.
    unsafe { libc::read(eventfd.as_raw_fd(), (&raw mut value).cast(), 8) };
}
