//! Park a worker: an operation that has to wait gets a thread that waits for it ([`worker`]).
//!
//! What nobody waits for is tried at once, without waiting, on the runtime's own thread. If it would wait, a worker
//! goes to stand at the descriptor. Mostly it only waits until an attempt may succeed, and the attempt is made here; so
//! no other thread ever touches the memory of an operation. A standing receive it makes itself, into its own buffer,
//! ahead of the task by that one buffer, and stays: in the steady state of a connection no worker is ever woken by us,
//! only by the peer.
//!
//! Workers are started on demand, up to a stated limit ([`Settings::workers`]); past it an operation fails with that
//! limit, it never queues (a bounded pool would stop for ever when all of it waits for somebody in the queue). Those
//! without anything to do are kept, up to [`IDLE_MAX`]. A connection is accepted only if there is one to wait for it, so
//! that nobody is taken from the backlog to be turned away; that one is nobody else's until the connection first waits,
//! in whichever direction.
//!
//! INVARIANT: a descriptor is not closed while a worker stands at it. A cancel calls the worker back and is answered
//! with `Asked`; the last completion comes when it has left, with what it had taken.

mod worker;

use super::{Cancelled, Driver, Name, Settings, alarm};
use crate::clock::{Clock, Until};
use crate::counters::Counters;
use crate::descriptor::NONE;
use crate::op::{Answer, Call, Completion, Kind, News, Op, Outcome, Span, Target, Token};
use crate::pool::{Lease, Pool};
use crate::sys::call::{self, Blocking};
use crate::sys::{attempt, check_wait, wait_span};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use worker::{Job, Post, Told, Worker};

/// Workers kept that have nothing to do.
const IDLE_MAX: usize = 64;

/// Completions that one word of a worker makes at most.
const COMPLETIONS_PER_WORD: usize = 2;

/// What the driver knows of one descriptor.
#[derive(Debug)]
struct Watch {
    generation: u32,
    /// `connect(2)` has begun.
    connecting: bool,
    reader: Side,
    writer: Side,
}

/// One direction of a descriptor.
#[derive(Clone, Copy, Debug)]
struct Side {
    /// The worker that stands there, or [`NONE`].
    worker: u32,
    /// There is something to take from it.
    has_news: bool,
    /// The operation it stands there for.
    parked: Option<Parked>,
    /// What the worker left with that nobody has taken: the end of the stream, or a negated errno.
    end: Option<i32>,
}

#[derive(Clone, Copy, Debug)]
struct Parked {
    token: Token,
    job: Job,
    standing: bool,
}

impl Side {
    const FRESH: Side = Side { worker: NONE, has_news: false, parked: None, end: None };
}

impl Watch {
    fn fresh(generation: u32) -> Watch {
        Watch { generation, connecting: false, reader: Side::FRESH, writer: Side::FRESH }
    }

    #[inline]
    fn side(&mut self, kind: Kind) -> &mut Side {
        if kind.is_inward() { &mut self.reader } else { &mut self.writer }
    }
}

/// A worker as the driver knows it.
struct Hired {
    worker: Arc<Worker>,
    thread: JoinHandle<()>,
    /// Where it stands: the place of the descriptor in `watches`, and for which kind of operation.
    index: u32,
    kind: Kind,
    /// It is called back, for the end of this operation.
    cancelled: Option<Token>,
}

/// The driver.
pub(crate) struct Threads {
    /// By index in the table of descriptors.
    watches: Vec<Watch>,
    workers: Vec<Option<Hired>>,
    /// Those that have nothing to do, the last on top.
    idle: Vec<u32>,
    /// How many of these are promised to connections, for their first wait; and to which, by descriptor number.
    promised: usize,
    promised_to: Vec<bool>,
    /// Places in `workers` without one.
    vacant: Vec<u32>,
    /// Threads that are about to end.
    leaving: Vec<JoinHandle<()>>,
    limit: u32,
    /// An accept has said that there are no more.
    told_full: bool,
    post: Arc<Post>,
    /// News being taken in, the first `next` of them taken.
    told: Vec<Told>,
    next: usize,
    /// Operations that no worker could be had for, told at the next wait.
    failed: Vec<Completion>,
    pool: Rc<Pool>,
    clock: Clock,
    counters: Counters,
}

impl Threads {
    pub(crate) fn new(settings: &Settings) -> io::Result<Threads> {
        Ok(Threads {
            watches: Vec::new(),
            workers: Vec::new(),
            idle: Vec::new(),
            promised: 0,
            promised_to: Vec::new(),
            vacant: Vec::new(),
            leaving: Vec::new(),
            limit: settings.workers,
            told_full: false,
            post: Arc::new(Post::new(Arc::new(alarm::waiting()?))),
            told: Vec::new(),
            next: 0,
            failed: Vec::new(),
            pool: Pool::new(settings.buffers, settings.buffer_bytes)?,
            clock: Clock::monotonic(),
            counters: Counters::default(),
        })
    }

    /// Makes an attempt that nobody waits for; EAGAIN is "not now", and then somebody stands there from now on if he
    /// should.
    #[inline]
    fn settle(&mut self, on: Target, kind: Kind, result: i32) -> Option<i32> {
        if result != -libc::EAGAIN {
            return Some(result);
        }
        self.counters.would_block += 1;
        if watch_of(&mut self.watches, on).side(kind).parked.is_some() {
            self.station(on, kind);
        }
        None
    }

    fn receive(&mut self, on: Target) -> Option<Result<Lease, i32>> {
        let side = &mut watch_of(&mut self.watches, on).reader;
        if side.worker != NONE {
            if !std::mem::take(&mut side.has_news) {
                return None;
            }
            let worker = &self.workers[side.worker as usize].as_ref()?.worker;
            let mut state = worker.state();
            let lease = lease_of(&self.pool, state.received());
            state.filled = 0;
            worker.taken(state);
            return Some(Ok(lease));
        }
        if let Some(end) = side.end.take() {
            return Some(if end < 0 { Err(end) } else { Ok(Lease::nothing()) });
        }
        // At most half are out (`Pool::lease`), and we use one at a time.
        let id = self.pool.take()?;
        let memory = Span { start: self.pool.buffer(id).as_ptr(), bytes: self.pool.buffer_bytes() };
        // SAFETY: the buffer was taken from the pool: nobody else reaches it, and it is of that size.
        let result = unsafe { attempt::receive(on.number, memory, &mut self.counters) };
        if result <= 0 {
            self.pool.put(id);
            let result = self.settle(on, Kind::Receive, result)?;
            return Some(if result < 0 { Err(result) } else { Ok(Lease::nothing()) });
        }
        // SAFETY: taken above, written only by the call that has returned.
        Some(Ok(unsafe { self.pool.lease(id, result as usize) }))
    }

    fn accept(&mut self, on: Target) -> Option<i32> {
        if watch_of(&mut self.watches, on).reader.worker != NONE {
            return None;
        }
        if self.idle.len() <= self.promised {
            match self.start() {
                Ok(id) => self.idle.push(id),
                // Said once; from then on it is as though the process had no descriptors left.
                Err(libc::EUSERS) if std::mem::replace(&mut self.told_full, true) => {
                    return Some(-libc::EMFILE);
                }
                Err(errno) => return Some(-errno),
            }
        }
        let result = attempt::accept(on.number, Blocking::No.socket_flags(), &mut self.counters);
        if let Ok(number) = usize::try_from(result) {
            if self.promised_to.len() <= number {
                self.promised_to.resize(number + 1, false);
            }
            self.promised_to[number] = true;
            self.promised += 1;
        }
        self.settle(on, Kind::Accept, result)
    }

    fn connect(&mut self, on: Target, address: &socket2::SockAddr) -> Option<i32> {
        let watch = watch_of(&mut self.watches, on);
        if watch.connecting {
            watch.connecting = false;
            return Some(attempt::take_error(on.number, &mut self.counters));
        }
        match attempt::connect(on.number, address, &mut self.counters) {
            // Interrupted, it goes on by itself (connect(2)).
            errno if matches!(-errno, libc::EINPROGRESS | libc::EINTR) => {
                watch_of(&mut self.watches, on).connecting = true;
                None
            }
            result => Some(result),
        }
    }

    /// Sends a worker to stand at a descriptor for the operation that is parked there.
    fn station(&mut self, on: Target, kind: Kind) {
        let side = watch_of(&mut self.watches, on).side(kind);
        let Some(Parked { token, job, .. }) = side.parked else { return };
        debug_assert_eq!(side.worker, NONE);
        let was_promised = self.redeem(on);
        match self.hire(was_promised) {
            Ok(id) => {
                watch_of(&mut self.watches, on).side(kind).worker = id;
                if let Some(hired) = &mut self.workers[id as usize] {
                    (hired.index, hired.kind, hired.cancelled) = (on.index, kind, None);
                    hired.worker.assign(job);
                }
            }
            Err(errno) => {
                watch_of(&mut self.watches, on).side(kind).parked = None;
                self.failed.push(Completion { token, news: News::Last(Outcome::of(-errno)) });
            }
        }
    }

    /// A worker that has nothing to do; a new one if need be. An errno if there is none to be had.
    fn hire(&mut self, was_promised: bool) -> Result<u32, i32> {
        let spare = if was_promised { 0 } else { self.promised };
        if self.idle.len() > spare
            && let Some(id) = self.idle.pop()
        {
            return Ok(id);
        }
        // The idle ones are promised. At the limit it is this operation that fails, and not theirs later.
        self.start()
    }

    /// A new worker.
    fn start(&mut self) -> Result<u32, i32> {
        let hired = self.workers.len() - self.vacant.len();
        if hired >= self.limit as usize {
            return Err(libc::EUSERS);
        }
        let id = self.vacant.last().copied().unwrap_or(self.workers.len() as u32);
        let started = Worker::start(id, self.pool.buffer_bytes(), &self.post, &mut self.counters);
        let (worker, thread) = started.map_err(|why| match why.raw_os_error() {
            // Of the bell. That is a limit of the machine, and told as such.
            Some(errno @ (libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => errno,
            // The system starts no more threads.
            _ => libc::EUSERS,
        })?;
        let hired = Hired { worker, thread, index: NONE, kind: Kind::Receive, cancelled: None };
        match self.vacant.pop() {
            Some(id) => self.workers[id as usize] = Some(hired),
            None => self.workers.push(Some(hired)),
        }
        Ok(id)
    }

    /// The promise to a connection, if there was one, is kept, or needed no more.
    fn redeem(&mut self, on: Target) -> bool {
        let promised = self.promised_to.get_mut(on.number as usize);
        let was_promised = promised.is_some_and(std::mem::take);
        self.promised -= usize::from(was_promised);
        was_promised
    }

    /// A worker has nothing to do any more: it is kept, or goes.
    fn release(&mut self, id: u32) {
        if self.idle.len() < IDLE_MAX {
            return self.idle.push(id);
        }
        if let Some(Hired { worker, thread, .. }) = self.workers[id as usize].take() {
            worker.dismiss(&mut self.counters);
            self.leaving.retain(|thread| !thread.is_finished());
            self.leaving.push(thread);
            self.vacant.push(id);
        }
    }

    /// Takes in what a worker has told.
    fn take_in(&mut self, told: Told, out: &mut Vec<Completion>) {
        self.counters.system_calls += u64::from(told.system_calls);
        self.counters.would_block += u64::from(told.would_block);
        let Some(hired) = &mut self.workers[told.worker as usize] else { return };
        // Not closed since: it stood there.
        let side = self.watches[hired.index as usize].side(hired.kind);
        if !told.left {
            side.has_news = true;
            if let Some(Parked { token, .. }) = side.parked {
                out.push(Completion { token, news: News::Ready });
            }
            return;
        }
        side.worker = NONE;
        side.has_news = false;
        let cancelled = hired.cancelled.take();
        let token = cancelled.or(side.parked.map(|parked| parked.token));
        let mut state = hired.worker.state();
        let end = state.end.take();
        // What it has taken and nobody has asked for yet.
        if let Some(token) = token
            && state.filled > 0
        {
            let item = Outcome::from(Ok(lease_of(&self.pool, state.received())));
            out.push(Completion { token, news: News::Item(item) });
        }
        state.filled = 0;
        drop(state);
        match (cancelled, side.parked) {
            (Some(token), _) => {
                let outcome = Outcome::of(end.unwrap_or(-libc::ECANCELED));
                out.push(Completion { token, news: News::Last(outcome) });
            }
            (None, Some(Parked { token, standing, .. })) => {
                side.end = end;
                if !standing {
                    side.parked = None;
                }
                out.push(Completion { token, news: News::Ready });
            }
            (None, None) => {}
        }
        self.release(told.worker);
    }

    /// Sleeps until the alarm rings, or time is up.
    fn sleep(&mut self, until: Until) -> io::Result<()> {
        self.counters.system_calls += 1;
        let alarm = self.post.alarm();
        let Some(mut span) = wait_span(until) else {
            return alarm::wait_for(alarm);
        };
        let mut set = libc::pollfd { fd: alarm.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let (set, span) = (&raw mut set, &raw mut span);
        // SAFETY: an entry and a timespec of this frame, written during the call only; no signal mask is given.
        let rings =
            unsafe { libc::syscall(libc::SYS_ppoll, set, 1usize, span, std::ptr::null::<u8>(), 0usize) };
        if check_wait(rings)? > 0 {
            alarm::silence(self.post.alarm(), &mut self.counters);
        }
        Ok(())
    }
}

/// A lease of a copy of bytes that fit a buffer.
fn lease_of(pool: &Rc<Pool>, bytes: &[u8]) -> Lease {
    let Some(id) = pool.take() else {
        return Lease::own(Box::new(crate::pool::Tail { bytes: bytes.to_vec(), start: 0 }));
    };
    assert!(bytes.len() <= pool.buffer_bytes(), "a worker's buffer is as large as the pool's");
    // SAFETY: the buffer was just taken, so nobody else reaches it, and it is long enough by the line above; it is
    // not the worker's, which is borrowed under its lock. Nobody writes it from here on.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), pool.buffer(id).as_ptr(), bytes.len());
        pool.lease(id, bytes.len())
    }
}

/// The entry of a descriptor, fresh if it is a new one.
#[inline]
fn watch_of(watches: &mut Vec<Watch>, on: Target) -> &mut Watch {
    let index = on.index as usize;
    if index >= watches.len() {
        watches.resize_with(index + 1, || Watch::fresh(u32::MAX));
    }
    let watch = &mut watches[index];
    if watch.generation != on.generation {
        *watch = Watch::fresh(on.generation);
    }
    watch
}

/// What a worker waits for, on behalf of somebody who receives, and of one who sends.
const IN: i16 = libc::POLLIN | libc::POLLRDHUP;
const OUT: i16 = libc::POLLOUT;

impl Driver for Threads {
    fn name(&self) -> Name {
        Name::Threads
    }

    fn call(&mut self, call: Call<'_>) -> io::Result<Answer> {
        if let Call::Close { on, .. } = call {
            self.redeem(on);
        }
        call::perform(call, Blocking::No, &mut self.counters)
    }

    fn tries(&self) -> bool {
        true
    }

    fn attempt(&mut self, op: &Op<'_>) -> Option<Outcome> {
        match *op {
            Op::Receive { on } | Op::ReceiveOne { on } => return self.receive(on).map(Outcome::from),
            Op::Send { on, bytes, .. } | Op::SendLasting { on, bytes, .. } => self.attempt_send(on, bytes),
            Op::Accept { on } => self.accept(on),
            Op::ReceiveInto { on, memory } => {
                if let Some(end) = watch_of(&mut self.watches, on).reader.end.take() {
                    return Some(Outcome::of(end));
                }
                // SAFETY: an attempt's memory is the caller's, who lends it for the call (`Op`, `op_of`).
                let result = unsafe { attempt::receive(on.number, memory, &mut self.counters) };
                self.settle(on, Kind::ReceiveInto, result)
            }
            Op::SendVectored { on, message }
            | Op::SendMessage { on, message }
            | Op::SendUnixMessage { on, message } => {
                // SAFETY: as above.
                let result = unsafe { attempt::send_vectored(on.number, message, &mut self.counters) };
                self.settle(on, op.kind(), result)
            }
            Op::ReceiveMessage { on, message } => {
                // SAFETY: as above.
                let result = unsafe { attempt::receive_message(on.number, message, &mut self.counters) };
                self.settle(on, Kind::ReceiveMessage, result)
            }
            Op::SendFile { on, file, at, bytes } => {
                let result = attempt::send_file(on.number, file, at, bytes, &mut self.counters);
                self.settle(on, Kind::SendFile, result)
            }
            Op::Connect { on, address } => self.connect(on, address),
            Op::File(_) => return None,
        }
        .map(Outcome::of)
    }

    fn attempt_receive(&mut self, on: Target) -> Option<Result<Lease, i32>> {
        self.receive(on)
    }

    fn attempt_send(&mut self, on: Target, bytes: Span) -> Option<i32> {
        // SAFETY: an attempt's memory is the caller's, who lends it for the call (`Op`, `op_of`).
        let result = unsafe { attempt::send(on.number, bytes, &mut self.counters) };
        self.settle(on, Kind::Send, result)
    }

    fn submit(&mut self, token: Token, op: &Op<'_>) {
        let on = op.target();
        let number = on.number;
        let kind = op.kind();
        let job = match kind {
            Kind::Receive => Job::Receive { number },
            _ => Job::Watch { number, events: if kind.is_inward() { IN } else { OUT } },
        };
        let side = watch_of(&mut self.watches, on).side(kind);
        side.parked = Some(Parked { token, job, standing: kind.is_standing() });
        self.station(on, kind);
    }

    fn cancel(&mut self, token: Token, kind: Kind, on: Target) -> Cancelled {
        self.failed.retain(|completion| completion.token != token);
        let side = watch_of(&mut self.watches, on).side(kind);
        side.parked = None;
        let Some(hired) = self.workers.get_mut(side.worker as usize).and_then(Option::as_mut) else {
            return Cancelled::Gone;
        };
        if hired.cancelled.is_none() {
            hired.cancelled = Some(token);
            hired.worker.call_back(&mut self.counters);
        }
        Cancelled::Asked
    }

    fn release(&mut self, on: Target) -> Option<i32> {
        self.redeem(on);
        let watch = watch_of(&mut self.watches, on);
        debug_assert!(
            watch.reader.worker == NONE && watch.writer.worker == NONE,
            "a worker stands there: {watch:?}"
        );
        watch.reader.end.take()
    }

    fn wait(&mut self, until: Until, out: &mut Vec<Completion>) -> io::Result<()> {
        self.counters.waits += 1;
        if self.next == self.told.len() {
            self.told.clear();
            self.next = 0;
            let may_sleep = self.failed.is_empty() && !matches!(until, Until::Now);
            if self.post.take(&mut self.told, may_sleep) {
                let slept = self.sleep(until);
                self.post.take(&mut self.told, false);
                slept?;
            } else if self.told.is_empty() {
                // A runtime that is never idle must not keep its workers from running, whose news is all the I/O it
                // has: for it this is the wait.
                self.counters.system_calls += 1;
                // SAFETY: sched_yield(2) takes nothing.
                unsafe { libc::sched_yield() };
                self.post.take(&mut self.told, false);
            }
        }
        out.append(&mut self.failed);
        while let Some(told) = self.told.get(self.next).copied()
            && out.len() + COMPLETIONS_PER_WORD <= crate::COMPLETIONS_PER_TURN
        {
            self.next += 1;
            self.take_in(told, out);
        }
        Ok(())
    }

    fn alarm(&self) -> Option<Arc<OwnedFd>> {
        Some(Arc::clone(self.post.alarm()))
    }

    fn pool(&self) -> &Rc<Pool> {
        &self.pool
    }

    fn sends_from_pool(&self) -> bool {
        false
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn explain(&self, errno: i32) -> Option<String> {
        (errno == libc::EUSERS).then(|| {
            format!(
                "what has to wait takes a worker thread of its own on this driver, and of at most {} none is free, or \
                 the system starts no more; allow more with `Builder::workers`, or use epoll",
                self.limit
            )
        })
    }

    fn abandon(self: Box<Self>) {
        // No worker touches the memory of an operation: ending them is all, and drop does that.
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let hired: Vec<_> = self.workers.drain(..).flatten().collect();
        for Hired { worker, .. } in &hired {
            worker.dismiss(&mut self.counters);
        }
        for thread in hired.into_iter().map(|hired| hired.thread).chain(self.leaving.drain(..)) {
            // A worker does not panic; if one did, it has said so by itself.
            let _ = thread.join();
        }
    }
}
