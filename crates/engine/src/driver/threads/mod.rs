//! The threads driver: an operation that has to wait gets a worker thread ([`worker`]).
//!
//! An operation is first attempted without waiting, on the runtime's thread. If it would block, a worker is
//! assigned to the descriptor. For most operations the worker only polls until an attempt may succeed. The
//! runtime's thread makes that attempt, so no other thread touches the memory of an operation. A standing
//! receive is different: the worker receives into its own buffer, one buffer ahead of the task, and stays
//! assigned. In the steady state of a connection only the peer wakes it, never the driver.
//!
//! Workers are started on demand, up to a limit ([`Settings::workers`]) of those that wait: one that is
//! called back is not one of them, so that connections that follow each other need no more than there are at
//! a time. Past the limit an operation fails; it never queues, since a bounded pool would deadlock when all
//! its workers wait for operations in the queue. Up to [`IDLE_MAX`] idle workers are kept. A connection is
//! accepted only if a worker can be reserved for it, so that no connection is taken from the backlog only to
//! be refused. The reservation ends when the connection first waits, in either direction.
//!
//! INVARIANT: a descriptor is not closed while a worker is assigned to it. A cancel calls the worker back and
//! returns `Asked`. The last completion comes when the worker has left, and carries what the worker had
//! received.

mod ground;
#[cfg(all(test, ringroad_loom))]
mod model;
mod worker;

use super::{Cancelled, Driver, DriverName, Settings, alarm};
use crate::clock::{Clock, Until};
use crate::counters::Counters;
use crate::descriptor::NONE;
use crate::op::{Answer, Call, Completion, Kind, News, Op, Outcome, Span, Target, Token};
use crate::pool::{LARGE_BYTES, Large, Lease, Pool};
use crate::sys::call;
use crate::sys::{attempt, check_wait, wait_span};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use worker::{Job, Post, State, Worker, WorkerMessage};

/// Idle workers that are kept.
const IDLE_MAX: usize = 64;

/// Maximum number of completions from one message of a worker.
const COMPLETIONS_PER_WORD: usize = 2;

/// The state of one descriptor.
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
    /// The worker assigned to it, or [`NONE`].
    worker: u32,
    /// The worker has received something.
    has_news: bool,
    /// The operation that the worker waits for.
    parked: Option<Parked>,
    /// How the worker ended, until a receive returns it: 0 (the end of the stream), or a negated errno.
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

/// The driver's side of a worker.
struct Hired {
    worker: Arc<Worker>,
    thread: JoinHandle<()>,
    /// Its assignment: the index of the descriptor in `watches`, and the kind of operation.
    index: u32,
    kind: Kind,
    /// The cancelled operation for which the worker was called back.
    cancelled: Option<Token>,
}

/// The driver.
pub(crate) struct Threads {
    /// By index in the table of descriptors.
    watches: Vec<Watch>,
    workers: Vec<Option<Hired>>,
    /// Idle workers, the last one on top.
    idle: Vec<u32>,
    /// How many idle workers are reserved for accepted connections, and for which, by descriptor number.
    reserved: usize,
    reserved_for: Vec<bool>,
    /// Free indices of `workers`.
    vacant: Vec<u32>,
    /// Dismissed threads that may still run.
    leaving: Vec<JoinHandle<()>>,
    limit: u32,
    /// An accept has failed for the limit of workers.
    told_full: bool,
    post: Arc<Post>,
    /// Messages of workers, the first `next` of them handled.
    told: Vec<WorkerMessage>,
    next: usize,
    /// Operations that got no worker; reported at the next wait.
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
            reserved: 0,
            reserved_for: Vec::new(),
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

    /// Handles the result of a non-blocking attempt. EAGAIN becomes `None`, and assigns a worker if an
    /// operation is parked.
    #[inline]
    fn handle_result(&mut self, on: Target, kind: Kind, result: i32) -> Option<i32> {
        if result != -libc::EAGAIN {
            return Some(result);
        }
        self.counters.would_block += 1;
        if watch_of(&mut self.watches, on).side(kind).parked.is_some() {
            self.assign_worker(on, kind);
        }
        None
    }

    fn receive(&mut self, on: Target, bulk: bool) -> Option<Result<Lease, i32>> {
        let side = &mut watch_of(&mut self.watches, on).reader;
        if side.worker != NONE {
            if !std::mem::take(&mut side.has_news) {
                return None;
            }
            let worker = &self.workers[side.worker as usize].as_ref()?.worker;
            let mut state = worker.state();
            let lease = lease_of(&self.pool, &mut state);
            state.room_bytes = if bulk { LARGE_BYTES } else { self.pool.buffer_bytes() };
            worker.taken(state);
            return Some(Ok(lease));
        }
        if let Some(end) = side.end.take() {
            return Some(if end < 0 { Err(end) } else { Ok(Lease::nothing()) });
        }
        if bulk {
            return self.receive_bulk(on);
        }
        // At most half are leased (`Pool::lease`), and this uses one at a time.
        let id = self.pool.take()?;
        let memory = Span { start: self.pool.buffer(id).as_ptr(), bytes: self.pool.buffer_bytes() };
        // SAFETY: the buffer was taken from the pool: no other code reaches it, and it has that size.
        let result = unsafe { attempt::receive(on.number, memory, &mut self.counters) };
        if result <= 0 {
            self.pool.put(id);
            let result = self.handle_result(on, Kind::Receive, result)?;
            return Some(if result < 0 { Err(result) } else { Ok(Lease::nothing()) });
        }
        // SAFETY: taken above, written only by the call that has returned.
        Some(Ok(unsafe { self.pool.lease(id, result as usize) }))
    }

    /// Receives into a large buffer, if no worker is assigned.
    fn receive_bulk(&mut self, on: Target) -> Option<Result<Lease, i32>> {
        let mut large = self.pool.take_large();
        // SAFETY: the buffer was just taken from the pool, so no other code uses it.
        let result = unsafe { attempt::receive(on.number, large.span(), &mut self.counters) };
        if result > 0 {
            // SAFETY: the call has just written this many bytes at the start of the buffer.
            return Some(Ok(unsafe { self.pool.lease_large(large, result as usize) }));
        }
        self.pool.put_large(large);
        let result = self.handle_result(on, Kind::Receive, result)?;
        Some(if result < 0 { Err(result) } else { Ok(Lease::nothing()) })
    }

    fn accept(&mut self, on: Target) -> Option<i32> {
        if watch_of(&mut self.watches, on).reader.worker != NONE {
            return None;
        }
        if self.idle.len() <= self.reserved {
            match self.start() {
                Ok(id) => self.idle.push(id),
                // An error the first time; from then on it counts as EMFILE.
                Err(libc::EUSERS) if std::mem::replace(&mut self.told_full, true) => {
                    return Some(-libc::EMFILE);
                }
                Err(errno) => return Some(-errno),
            }
        }
        let result = attempt::accept(on.number, &mut self.counters);
        if let Ok(number) = usize::try_from(result) {
            if self.reserved_for.len() <= number {
                self.reserved_for.resize(number + 1, false);
            }
            self.reserved_for[number] = true;
            self.reserved += 1;
        }
        self.handle_result(on, Kind::Accept, result)
    }

    fn connect(&mut self, on: Target, address: &socket2::SockAddr) -> Option<i32> {
        let watch = watch_of(&mut self.watches, on);
        if watch.connecting {
            watch.connecting = false;
            return Some(attempt::take_error(on.number, &mut self.counters));
        }
        match attempt::connect(on.number, address, &mut self.counters) {
            // After EINTR the connect goes on asynchronously (connect(2)).
            errno if matches!(-errno, libc::EINPROGRESS | libc::EINTR) => {
                watch_of(&mut self.watches, on).connecting = true;
                None
            }
            result => Some(result),
        }
    }

    /// Assigns a worker to the descriptor, for the operation that is parked on it.
    fn assign_worker(&mut self, on: Target, kind: Kind) {
        let side = watch_of(&mut self.watches, on).side(kind);
        let Some(Parked { token, job, .. }) = side.parked else { return };
        debug_assert_eq!(side.worker, NONE);
        let was_reserved = self.end_reservation(on);
        match self.hire(was_reserved) {
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

    /// Returns an idle worker, or a new one. An errno if the limit is reached.
    fn hire(&mut self, was_reserved: bool) -> Result<u32, i32> {
        let spare = if was_reserved { 0 } else { self.reserved };
        if self.idle.len() > spare
            && let Some(id) = self.idle.pop()
        {
            return Ok(id);
        }
        // All idle workers are reserved. At the limit this operation fails, so that a reserved one does not
        // fail later.
        self.start()
    }

    /// Starts a worker.
    fn start(&mut self) -> Result<u32, i32> {
        let hired = self.workers.len() - self.vacant.len();
        // Those that are called back do not wait any more: connections that end make room for others at once.
        let limit = self.limit as usize;
        if hired >= limit && hired - self.called_back() >= limit {
            return Err(libc::EUSERS);
        }
        let id = self.vacant.last().copied().unwrap_or(self.workers.len() as u32);
        let started = Worker::start(id, &self.post, &mut self.counters);
        let (worker, thread) = started.map_err(|why| match why.raw_os_error() {
            // From eventfd(2): a system limit.
            Some(errno @ (libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => errno,
            // From starting the thread.
            _ => libc::EUSERS,
        })?;
        let hired = Hired { worker, thread, index: NONE, kind: Kind::Receive, cancelled: None };
        match self.vacant.pop() {
            Some(id) => self.workers[id as usize] = Some(hired),
            None => self.workers.push(Some(hired)),
        }
        Ok(id)
    }

    /// Returns how many workers are on their way back. Looked at where the limit is met, and nowhere else.
    fn called_back(&self) -> usize {
        self.workers.iter().flatten().filter(|hired| hired.cancelled.is_some()).count()
    }

    /// Ends the reservation of a connection; returns whether there was one.
    fn end_reservation(&mut self, on: Target) -> bool {
        let reserved = self.reserved_for.get_mut(on.number as usize);
        let was_reserved = reserved.is_some_and(std::mem::take);
        self.reserved -= usize::from(was_reserved);
        was_reserved
    }

    /// Keeps an idle worker, or dismisses it.
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

    /// Handles a message of a worker.
    fn take_in(&mut self, told: WorkerMessage, out: &mut Vec<Completion>) {
        self.counters.system_calls += u64::from(told.system_calls);
        self.counters.would_block += u64::from(told.would_block);
        let Some(hired) = &mut self.workers[told.worker as usize] else { return };
        // The descriptor is still open: the worker was assigned to it.
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
        // What it has received and no task has taken yet.
        if let Some(token) = token
            && !state.received.is_empty()
        {
            let item = Outcome::from(Ok(lease_of(&self.pool, &mut state)));
            out.push(Completion { token, news: News::Item(item) });
        }
        state.received.clear();
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
        // SAFETY: an entry and a timespec of this frame, written during the call only; no signal mask is
        // given.
        let rings =
            unsafe { libc::syscall(libc::SYS_ppoll, set, 1usize, span, std::ptr::null::<u8>(), 0usize) };
        if check_wait(rings)? > 0 {
            alarm::silence(self.post.alarm(), &mut self.counters);
        }
        Ok(())
    }
}

/// Returns a lease of what a worker has received: a copy if it fits a small buffer, otherwise the worker's
/// buffer itself.
fn lease_of(pool: &Rc<Pool>, state: &mut State) -> Lease {
    let received = &mut state.received;
    if received.len() <= pool.buffer_bytes() {
        let lease = pool.lease_copy(received);
        received.clear();
        if received.capacity() > pool.buffer_bytes() {
            // A waiting worker holds no large buffer.
            *received = Vec::new();
        }
        return lease;
    }
    let bytes = received.len();
    // SAFETY: all bytes of a `Vec` were written.
    unsafe { pool.lease_large(Large::of(std::mem::take(received)), bytes) }
}

/// Returns the state of a descriptor, reset if the generation is new.
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

/// The `poll` events of a worker that waits for input, and of one that waits for output.
const IN: i16 = libc::POLLIN | libc::POLLRDHUP;
const OUT: i16 = libc::POLLOUT;

impl Driver for Threads {
    fn name(&self) -> DriverName {
        DriverName::Threads
    }

    fn call(&mut self, call: Call<'_>) -> io::Result<Answer> {
        if let Call::Close { on, .. } = call {
            self.end_reservation(on);
        }
        call::perform(call, &mut self.counters)
    }

    fn tries(&self) -> bool {
        true
    }

    fn attempt(&mut self, op: &Op<'_>) -> Option<Outcome> {
        match *op {
            Op::Receive { on } => return self.receive(on, false).map(Outcome::from),
            Op::ReceiveBulk { on } => return self.receive(on, true).map(Outcome::from),
            Op::Send { on, bytes, .. } | Op::SendLasting { on, bytes, .. } => self.attempt_send(on, bytes),
            Op::Accept { on } => self.accept(on),
            Op::ReceiveInto { on, memory } => {
                if let Some(end) = watch_of(&mut self.watches, on).reader.end.take() {
                    return Some(Outcome::of(end));
                }
                // SAFETY: the caller owns an attempt's memory and lends it for the call (`Op`, `op_of`).
                let result = unsafe { attempt::receive(on.number, memory, &mut self.counters) };
                self.handle_result(on, Kind::ReceiveInto, result)
            }
            Op::SendVectored { on, message }
            | Op::SendMessage { on, message }
            | Op::SendUnixMessage { on, message } => {
                // SAFETY: as above.
                let result = unsafe { attempt::send_vectored(on.number, message, &mut self.counters) };
                self.handle_result(on, op.kind(), result)
            }
            Op::ReceiveMessage { on, message } => {
                // SAFETY: as above.
                let result = unsafe { attempt::receive_message(on.number, message, &mut self.counters) };
                self.handle_result(on, Kind::ReceiveMessage, result)
            }
            Op::SendFile { on, file, at, bytes } => {
                let result = attempt::send_file(on.number, file, at, bytes, &mut self.counters);
                self.handle_result(on, Kind::SendFile, result)
            }
            Op::Connect { on, address } => self.connect(on, address),
            Op::Readable { on } => {
                let result = attempt::is_readable(on.number, &mut self.counters);
                self.handle_result(on, Kind::Readable, result)
            }
            Op::Writable { on } => {
                let result = attempt::is_writable(on.number, &mut self.counters);
                self.handle_result(on, Kind::Writable, result)
            }
            Op::File(_) => return None,
        }
        .map(Outcome::of)
    }

    fn attempt_receive(&mut self, on: Target, bulk: bool) -> Option<Result<Lease, i32>> {
        self.receive(on, bulk)
    }

    /// Returns whether bytes are withheld: a worker receives with its state locked, so what it has taken out
    /// of the socket is seen here.
    fn withholds(&mut self, _: Token, on: Target) -> bool {
        let side = watch_of(&mut self.watches, on).reader;
        let hired = self.workers.get(side.worker as usize).and_then(Option::as_ref);
        side.end.is_some()
            || hired.is_some_and(|hired| {
                let state = hired.worker.state();
                !state.received.is_empty() || state.end.is_some()
            })
    }

    fn attempt_send(&mut self, on: Target, bytes: Span) -> Option<i32> {
        // SAFETY: the caller owns an attempt's memory and lends it for the call (`Op`, `op_of`).
        let result = unsafe { attempt::send(on.number, bytes, &mut self.counters) };
        self.handle_result(on, Kind::Send, result)
    }

    fn submit(&mut self, token: Token, op: &Op<'_>) {
        let on = op.target();
        let number = on.number;
        let kind = op.kind();
        let job = match kind {
            Kind::Receive => {
                let bulk = matches!(op, Op::ReceiveBulk { .. });
                let room_bytes = if bulk { LARGE_BYTES } else { self.pool.buffer_bytes() };
                Job::Receive { number, room_bytes }
            }
            _ => Job::Watch { number, events: if kind.is_inward() { IN } else { OUT } },
        };
        let side = watch_of(&mut self.watches, on).side(kind);
        side.parked = Some(Parked { token, job, standing: kind.is_standing() });
        self.assign_worker(on, kind);
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
        self.end_reservation(on);
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
                // A busy runtime must let its workers run, since their messages are all its I/O.
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

    fn abandon(self: Box<Self>, _: Duration) {
        // No worker touches the memory of an operation. Drop ends them.
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let hired: Vec<_> = self.workers.drain(..).flatten().collect();
        for Hired { worker, .. } in &hired {
            worker.dismiss(&mut self.counters);
        }
        for thread in hired.into_iter().map(|hired| hired.thread).chain(self.leaving.drain(..)) {
            // A worker does not panic; if one did, the panic hook has reported it.
            let _ = thread.join();
        }
    }
}
