//! The io_uring driver: operations become entries of a ring; one `io_uring_enter` per turn submits them and
//! waits for completions.
//!
//! The kernel waits and attempts, so there is little state here: the slot keeps what an operation names, and
//! the completion carries the slot's token. This module decides what is submitted and when. `completion`
//! handles completions, `setup` makes the ring. The queues and the buffer ring are in [`ringroad_uring`],
//! memory ownership in `inflight`.
//!
//! `holds` records where an operation is: in `starved` or in `line`, where the kernel has not seen it; in the
//! submission queue or in the kernel; or out. Operations wait for two reasons:
//!
//! - `starved`: the buffer ring is empty, so the receive would fail. It is submitted once buffers are
//!   returned.
//! - `line`: the submission queue is full, or as much was submitted in this turn as the completion queue can
//!   hold. The bound is per turn and not on the number in flight: any number of operations may wait for
//!   peers, and the operation queued behind them could be what those peers wait for.
//!
//! Start reading at [`Uring::wait`].

mod accept;
mod completion;
mod direct;
mod file;
mod line;
pub(crate) mod setup;
#[cfg(test)]
mod tests;
mod zero_copy;

use super::features::ZeroCopy;
use super::{Cancelled, Driver, DriverName, Settings};
use crate::clock::{Clock, Moment, Until};
use crate::counters::Counters;
use crate::op::{Answer, Call, Completion, FileOp, Kind, Op, Outcome, Target, Token};
use crate::pool::Pool;
use crate::sys::attempt::{self, SOCKET_FLAGS, bounded};
use crate::sys::call;
use crate::{Error, Result};
use line::Line;
use ringroad_uring::{Cqe, FileTable, Ring, Sqe, Wait};
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which cancels that found nothing are sent again.
const AGAIN: Duration = Duration::from_millis(10);

/// Sends of at least this many bytes are attempted by a plain call, so that the buffer is free for the next
/// receive while it is still in the cache. The cost of the call is small beside the copy. Smaller sends share
/// one `io_uring_enter`.
pub(crate) const BULK_BYTES_MIN: usize = 16 * 1024;

/// The buffer group of the standing receives.
const GROUP: u16 = 0;

// user_data is the token, with the kind of completion in the four top bits of its index. (There are fewer
// slots than descriptors, and fewer descriptors than 2^28.)
const TAG: u64 = 7 << 28;
const ONE_SHOT: u64 = 0;
const RECEIVE: u64 = 1 << 29;
/// Accepts and opens: the result is a descriptor.
const DESCRIPTOR: u64 = 2 << 29;
/// A poll for room or input before an attempt.
const ROOM: u64 = 3 << 29;
/// A zero-copy send, which completes twice.
const ZERO_COPY: u64 = 1 << 28;
/// The cancel of the operation that the other bits name.
const CANCEL: u64 = 1 << 31;
/// The read of the alarm. No slot has this index.
const ALARM: u64 = !CANCEL;
/// An entry that the kernel completes during submission ([`Uring::at_once`]). No slot has this index, nor
/// that of [`INSTALL`].
const AT_ONCE: u64 = ALARM - 1;
/// The same, with a descriptor as its result.
const INSTALL: u64 = ALARM - 2;

pub(crate) struct Uring {
    kernel: ManuallyDrop<Shared>,
    /// Submitted entries that wait for their last completion. Cancels are not counted: they name no memory.
    in_flight: u64,
    /// Entries that may still be submitted in this turn.
    room: u32,
    /// Operations not submitted yet, in order, by their user_data.
    line: Line<Sqe>,
    /// Receives that wait for a buffer in the ring: the target, and whether they are standing.
    starved: Line<(Target, bool)>,
    /// The last ticket given to an operation that waits.
    tickets: u32,
    /// Operations to be cancelled, by their user_data.
    cancels: Vec<u64>,
    /// Operations with a cancel that found nothing, and the time from which it may be sent again.
    missed: Vec<u64>,
    again_from: Moment,
    /// By slot: where its operation is.
    holds: Vec<Hold>,
    /// Completions taken from the queue and not handled yet, in order: a bundle that did not fit into its
    /// turn, and those that arrived during [`Uring::at_once`].
    held: VecDeque<Cqe>,
    accepting: accept::Accepting,
    /// Places in the table of direct connections; `None`: the default, or what the kernel allows.
    places: Option<u32>,
    zero_copy: zero_copy::ZeroCopy,
    /// An error of the ring, to be returned by the next wait.
    failed: Option<io::Error>,
    abilities: Abilities,
    clock: Clock,
    /// Time limit for the drop, which waits until nothing is in flight.
    patience: Duration,
    counters: Counters,
}

/// Everything the kernel can access. Freed only when nothing is in flight.
struct Shared {
    ring: Ring,
    /// The table of direct connections, created for the first of them.
    table: Option<FileTable>,
    pool: Rc<Pool>,
    alarm: Arc<OwnedFd>,
    /// Target of the alarm's read.
    alarm_count: Box<UnsafeCell<u64>>,
}

/// Where the operation of a slot is. The next operation of a slot may have the same token, so only this
/// record shows whether a cancel is for an operation that the driver still has.
#[derive(Clone, Copy, Debug)]
struct Hold {
    generation: u32,
    place: Place,
    /// A receive in bulk, which polls for data and receives nothing.
    only_waits: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Not submitted, or its last completion has been handled.
    Out,
    /// In `line` or `starved`, as the entry with this ticket.
    Waiting(u32),
    /// Submitted.
    Kernel,
    /// Submitted, and to be cancelled: it is in `cancels` or in `missed`.
    Doomed,
    /// Submitted, and so is its cancel.
    Cancelled,
}

/// Optional features that this kernel has and the settings allow.
#[derive(Clone, Copy, Debug)]
struct Abilities {
    multishot_accept: bool,
    no_iowait: bool,
    bundles: bool,
    files: file::Files,
    zero_copy: ZeroCopy,
}

impl Uring {
    /// Creates a ring for the calling thread.
    ///
    /// # Errors
    /// The error of `io_uring_setup(2)` with a hint, or the names of the features that the kernel lacks.
    pub(crate) fn new(settings: &Settings) -> Result<Uring> {
        let (shared, abilities) = setup::make(settings)?;
        let mut driver = Uring {
            kernel: ManuallyDrop::new(shared),
            in_flight: 0,
            room: 0,
            line: Line::new(),
            starved: Line::new(),
            tickets: 0,
            cancels: Vec::new(),
            missed: Vec::new(),
            again_from: Moment::default(),
            holds: Vec::new(),
            held: VecDeque::new(),
            accepting: accept::Accepting::default(),
            places: settings.places,
            zero_copy: zero_copy::ZeroCopy::new(abilities.zero_copy),
            failed: None,
            abilities,
            clock: Clock::monotonic(),
            patience: completion::PATIENCE,
            counters: Counters::default(),
        };
        driver.room = driver.kernel.ring.completions().entries();
        driver.watch_alarm();
        Ok(driver)
    }

    /// Submits an operation, or puts it in line; order is kept.
    #[inline]
    fn push(&mut self, bits: u64, entry: Sqe) {
        let waiting = match self.line.is_empty() {
            true => self.fill(bits, entry).err(),
            false => Some(entry),
        };
        if let Some(entry) = waiting {
            let ticket = self.ticket(bits);
            self.line.push_back(bits, ticket, entry);
        }
    }

    /// Marks an operation as waiting; returns the ticket for its entry.
    #[cold]
    fn ticket(&mut self, bits: u64) -> u32 {
        self.tickets = self.tickets.wrapping_add(1);
        if self.tickets == 0 {
            self.line.purge(&self.holds);
            self.starved.purge(&self.holds);
        }
        self.put(bits, Place::Waiting(self.tickets));
        self.tickets
    }

    /// Submits an operation, or returns it if there is no room.
    #[inline]
    fn fill(&mut self, bits: u64, entry: Sqe) -> std::result::Result<(), Sqe> {
        self.write(entry.user_data(bits))?;
        self.in_flight += 1;
        self.put(bits, Place::Kernel);
        Ok(())
    }

    /// Records where an operation is.
    #[inline]
    fn put(&mut self, bits: u64, place: Place) {
        let Token { index, generation } = Token::from_bits(bits & !TAG);
        let index = index as usize;
        if index >= self.holds.len() {
            if bits == ALARM {
                return;
            }
            self.holds.resize(index + 1, Hold { generation, place: Place::Out, only_waits: false });
        }
        let before = self.holds[index];
        // An operation keeps this mark until it is out.
        let only_waits = before.only_waits && before.generation == generation && before.place != Place::Out;
        self.holds[index] = Hold { generation, place, only_waits };
    }

    /// Marks the operation with this token, which was just recorded, as one that receives nothing.
    fn set_only_waits(&mut self, bits: u64) {
        let Token { index, .. } = Token::from_bits(bits & !TAG);
        self.holds[index as usize].only_waits = true;
    }

    /// Returns whether the operation with this token only polls.
    #[inline]
    fn only_waits(&self, token: Token) -> bool {
        let hold = self.holds.get(token.index as usize);
        hold.is_some_and(|hold| hold.only_waits && hold.generation == token.generation)
    }

    /// Receives available bytes into a large buffer, which becomes a lease.
    fn receive_bulk(&mut self, on: Target) -> Option<Outcome> {
        let pool = &self.kernel.pool;
        let mut large = pool.take_large();
        // SAFETY: the buffer was just taken from the pool, so no other code uses it.
        let result = unsafe { attempt::receive(on.number, large.span(), &mut self.counters) };
        if result > 0 {
            // SAFETY: the call has just written this many bytes at the start of the buffer.
            let lease = unsafe { pool.lease_large(large, result as usize) };
            return Some(Outcome { result, lease: Some(lease) });
        }
        pool.put_large(large);
        if result == -libc::EAGAIN {
            self.counters.would_block += 1;
            return None;
        }
        Some(Outcome::of(result))
    }

    /// Returns where the operation with this token is; `None` if its slot has another generation.
    #[inline]
    fn hold(&mut self, bits: u64) -> Option<&mut Place> {
        let Token { index, generation } = Token::from_bits(bits & !TAG);
        let hold = self.holds.get_mut(index as usize)?;
        (hold.generation == generation).then_some(&mut hold.place)
    }

    /// Writes an entry into the submission queue, or returns it if there is no room in this turn.
    #[inline]
    fn write(&mut self, entry: Sqe) -> std::result::Result<(), Sqe> {
        if self.room == 0 {
            return Err(entry);
        }
        if self.kernel.ring.submissions().is_full() {
            self.counters.queue_full += 1;
            self.hand_over();
        }
        let mut queue = self.kernel.ring.submissions();
        let Some(slot) = queue.reserve() else { return Err(entry) };
        // SAFETY: what an operation names stays in place and untouched until its last completion is reported:
        // that is the contract of `Driver::submit`, and `Line` returns no cancelled operation. What a
        // zero-copy send names stays until its notification, because `zero_copy` keeps an owner. The alarm's
        // memory and the buffers that receives select are in `Shared`, freed only when nothing is in flight
        // (`drop`). Cancels name no memory.
        unsafe { slot.fill(entry) };
        self.room -= 1;
        Ok(())
    }

    /// Submits what the queue holds, without waiting.
    #[cold]
    fn hand_over(&mut self) {
        self.counters.system_calls += 1;
        if let Err(why) = self.kernel.ring.submit()
            && !is_passing(&why)
        {
            self.failed = Some(why);
        }
    }

    /// Submits the read of the alarm, which ends a wait when another thread rings it.
    fn watch_alarm(&mut self) {
        let Shared { alarm, alarm_count, .. } = &*self.kernel;
        let entry = Sqe::read(alarm.as_raw_fd(), alarm_count.get().cast(), size_of::<u64>() as u32, 0);
        self.push(ALARM, entry);
    }

    fn receive(&self, on: Target, stands: bool) -> Sqe {
        if !stands {
            return at(on, |fd| Sqe::recv_selected(fd, GROUP));
        }
        // Never POLL_FIRST: a multishot that begins by waiting on a socket already reset delivers its bytes,
        // drops the reset, and is never woken again (Linux 6.18).
        let entry = at(on, |fd| Sqe::recv_multishot(fd, GROUP));
        if self.abilities.bundles { entry.bundle() } else { entry }
    }

    /// Returns the number of buffers in the ring, as of the completions taken so far.
    #[inline]
    fn buffers_offered(&self) -> u16 {
        self.kernel.pool.with_ring(|ring| ring.entries() - ring.outstanding()).unwrap_or_default()
    }

    /// Returns free buffers to the ring, and submits receives that waited for them.
    #[inline]
    fn refill(&mut self) {
        self.kernel.pool.refill(|ring, free| {
            free.drain(..).for_each(|id| ring.stage(id));
            ring.offer();
        });
        if !self.starved.is_empty() {
            self.submit_starved();
        }
    }

    /// Submits as many starved receives as there are buffers.
    #[cold]
    fn submit_starved(&mut self) {
        for _ in 0..self.buffers_offered() {
            let Some((bits, _, (on, stands))) = self.starved.pop_front(&self.holds) else { break };
            let entry = self.receive(on, stands);
            self.push(bits, entry);
        }
    }

    /// Repeats the cancels that found nothing, unless that was done less than [`AGAIN`] ago; then returns how
    /// long the next wait may last. Without the pause the driver would spin: the kernel completes a cancel
    /// immediately for an operation that waits for a disk or runs on a kernel thread.
    #[cold]
    fn cancel_again(&mut self) -> Option<Duration> {
        let now = self.clock.now();
        if now < self.again_from {
            return Some(self.again_from.since(now));
        }
        self.again_from = now.after(AGAIN);
        self.cancels.append(&mut self.missed);
        None
    }

    /// Submits cancels while there is room. Successful cancels post no completion.
    #[cold]
    fn flush_cancels(&mut self) {
        while let Some(bits) = self.cancels.pop() {
            // The operation has completed meanwhile, and its slot may have a new one.
            if self.hold(bits).is_none_or(|place| *place != Place::Doomed) {
                continue;
            }
            if self.write(Sqe::cancel(bits).user_data(bits | CANCEL).skip_success()).is_err() {
                return self.cancels.push(bits);
            }
            self.put(bits, Place::Cancelled);
        }
    }

    /// Moves operations from the line into the queue while there is room.
    #[cold]
    fn advance_line(&mut self) {
        while let Some((bits, ticket, entry)) = self.line.pop_front(&self.holds) {
            if let Err(entry) = self.fill(bits, entry) {
                return self.line.push_front(bits, ticket, entry);
            }
        }
    }

    fn enter(&mut self, wait: Wait) -> io::Result<()> {
        self.counters.system_calls += 1;
        match self.kernel.ring.submit_and_wait(wait) {
            Err(why) if !is_passing(&why) => Err(why),
            _ => Ok(()),
        }
    }
}

impl Driver for Uring {
    fn name(&self) -> DriverName {
        DriverName::IoUring
    }

    fn call(&mut self, call: Call<'_>) -> io::Result<Answer> {
        if let Call::Close { on, .. } = call {
            self.zero_copy.forget(on.index);
        }
        if call.target().is_some_and(|on| on.is_direct()) {
            return self.call_by_place(call);
        }
        call::perform(call, &mut self.counters)
    }

    fn tries(&self) -> bool {
        false
    }

    fn withholds(&mut self, token: Token, _: Target) -> bool {
        self.has_completed(token)
    }

    /// Attempts only operations for which a plain system call is better. Everything else is submitted, many
    /// entries in one system call. For the following the ring only polls until an attempt may succeed:
    /// - receives and sends in bulk. The cost of the call is small beside the copy of the bytes, and all
    ///   streams use one buffer that stays in the cache. A buffer ring would use each buffer in turn;
    /// - a file sent to a socket: io_uring has no `sendfile`, and a splice through a pipe needs a kernel
    ///   thread for each half;
    /// - a Unix datagram: if the receiver has no room, the ring's first attempt consumes the iterator, and
    ///   its retry sends an empty datagram (Linux 6.18: `unix_dgram_sendmsg` copies the bytes before it
    ///   checks for room).
    fn attempt(&mut self, op: &Op<'_>) -> Option<Outcome> {
        let result = match *op {
            Op::ReceiveBulk { on } if !on.is_direct() => return self.receive_bulk(on),
            Op::Send { on, bytes, .. } if bytes.bytes >= BULK_BYTES_MIN && !on.is_direct() => {
                // SAFETY: the caller owns an attempt's memory and lends it for the call (`Op`, `op_of`).
                unsafe { attempt::send(on.number, bytes, &mut self.counters) }
            }
            Op::SendFile { on, .. } if on.is_direct() => -libc::EOPNOTSUPP,
            Op::SendFile { on, file, at, bytes } => {
                attempt::send_file(on.number, file, at, bytes, &mut self.counters)
            }
            // SAFETY: the caller owns an attempt's memory and lends it for the call (`Op`, `op_of`).
            Op::SendUnixMessage { on, message } => unsafe {
                attempt::send_vectored(on.number, message, &mut self.counters)
            },
            Op::Readable { on } => attempt::is_readable(on.number, &mut self.counters),
            Op::Writable { on } => attempt::is_writable(on.number, &mut self.counters),
            _ => return None,
        };
        if result == -libc::EAGAIN {
            self.counters.would_block += 1;
            return None;
        }
        Some(Outcome::of(result))
    }

    fn takes(&self, op: &FileOp) -> bool {
        self.abilities.files.has(op)
    }

    #[inline]
    fn submit(&mut self, token: Token, op: &Op<'_>) {
        debug_assert!(u64::from(token.index) < ZERO_COPY, "slots are fewer than descriptors");
        let bits = token.to_bits();
        // MSG_NOSIGNAL: a closed peer is EPIPE, never a signal. MSG_WAITALL: the kernel continues a short
        // send.
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        match *op {
            Op::ReceiveBulk { on } if !on.is_direct() => {
                let bits = bits | RECEIVE;
                self.push(bits, Sqe::poll_add(on.number, libc::POLLIN as u32));
                self.set_only_waits(bits);
            }
            // A direct connection cannot be attempted: it receives one buffer at a time.
            Op::Receive { on } | Op::ReceiveBulk { on } => {
                let bits = bits | RECEIVE;
                let stands = matches!(op, Op::Receive { .. });
                if self.buffers_offered() == 0 {
                    let ticket = self.ticket(bits);
                    return self.starved.push_back(bits, ticket, (on, stands));
                }
                let entry = self.receive(on, stands);
                self.push(bits, entry);
            }
            Op::Send { on, bytes, whole } | Op::SendLasting { on, bytes, whole, .. } => {
                let length = bounded(bytes.bytes) as u32;
                let flags = if whole { flags } else { libc::MSG_NOSIGNAL };
                if let Op::SendLasting { owner, .. } = *op
                    && self.zero_copy.keep(bits | ZERO_COPY, on, bytes.bytes, owner)
                {
                    let entry = at(on, |fd| Sqe::send_zc(fd, bytes.start, length, flags));
                    return self.push(bits | ZERO_COPY, entry.report_usage());
                }
                self.push(bits | ONE_SHOT, at(on, |fd| Sqe::send(fd, bytes.start, length, flags)));
            }
            Op::SendVectored { on, message } => {
                self.push(bits | ONE_SHOT, at(on, |fd| Sqe::sendmsg(fd, message, flags)));
            }
            Op::SendFile { on, .. } | Op::SendUnixMessage { on, .. } | Op::Writable { on } => {
                self.push(bits | ROOM, Sqe::poll_add(on.number, libc::POLLOUT as u32));
            }
            Op::Readable { on } => self.push(bits | ROOM, Sqe::poll_add(on.number, libc::POLLIN as u32)),
            Op::SendMessage { on, message } => {
                self.push(bits | ONE_SHOT, Sqe::sendmsg(on.number, message, libc::MSG_NOSIGNAL));
            }
            Op::ReceiveMessage { on, message } => {
                self.push(bits | ONE_SHOT, Sqe::recvmsg(on.number, message, libc::MSG_TRUNC));
            }
            Op::ReceiveInto { on, memory } => {
                let length = bounded(memory.bytes) as u32;
                self.push(bits | ONE_SHOT, at(on, |fd| Sqe::recv(fd, memory.start, length, 0)));
            }
            Op::Accept { on } => {
                let entry = match self.may_accept_ahead() {
                    true => Sqe::accept_multishot(on.number, SOCKET_FLAGS),
                    false => Sqe::accept(on.number, SOCKET_FLAGS),
                };
                self.push(bits | DESCRIPTOR, entry);
            }
            Op::Connect { on, address } => {
                let entry = Sqe::connect(on.number, address.as_ptr().cast(), address.len());
                self.push(bits | ONE_SHOT, entry);
            }
            Op::File(op) => {
                let tag = if op.opens() { DESCRIPTOR } else { ONE_SHOT };
                self.push(bits | tag, file::entry(op));
            }
        }
    }

    fn cancel(&mut self, token: Token, kind: Kind, _: Target) -> Cancelled {
        let tag = match kind {
            Kind::Accept | Kind::Open => DESCRIPTOR,
            Kind::Receive => RECEIVE,
            Kind::Send if self.zero_copy.is_under_way(token.to_bits() | ZERO_COPY) => ZERO_COPY,
            Kind::Connect
            | Kind::ReceiveInto
            | Kind::Send
            | Kind::SendVectored
            | Kind::ReceiveMessage
            | Kind::SendMessage
            | Kind::File => ONE_SHOT,
            Kind::SendFile | Kind::SendUnixMessage | Kind::Readable | Kind::Writable => ROOM,
        };
        let bits = token.to_bits() | tag;
        match self.hold(bits) {
            // The kernel has not seen it.
            Some(place @ Place::Waiting(_)) => {
                *place = Place::Out;
                self.line.trim(&self.holds);
                self.starved.trim(&self.holds);
                if tag == ZERO_COPY {
                    self.zero_copy.withdraw(bits);
                }
                Cancelled::Gone
            }
            Some(place @ Place::Kernel) => {
                *place = Place::Doomed;
                self.cancels.push(bits);
                Cancelled::Asked
            }
            Some(Place::Out | Place::Doomed | Place::Cancelled) | None => Cancelled::Asked,
        }
    }

    fn release(&mut self, on: Target) -> Option<i32> {
        self.zero_copy.forget(on.index);
        None
    }

    fn direct_places(&mut self) -> Result<u32> {
        self.table().map(|table| table.places())
    }

    fn make_direct(&mut self, socket: OwnedFd) -> std::result::Result<u32, (Error, OwnedFd)> {
        self.take_in(socket)
    }

    fn wait(&mut self, until: Until, out: &mut Vec<Completion>) -> io::Result<()> {
        self.refill();
        let pause = if self.missed.is_empty() { None } else { self.cancel_again() };
        if !self.cancels.is_empty() {
            self.flush_cancels();
        }
        if !self.line.is_empty() {
            self.advance_line();
        }
        if let Some(why) = self.failed.take() {
            return Err(why);
        }
        // Operations that found no room are submitted in the next turn, so this wait must not block. The same
        // holds for starved receives while there are buffers: the first may have nothing to receive while
        // later ones have. Held completions are reported without a wait.
        let starving = !self.starved.is_empty() && self.buffers_offered() > 0;
        let may_block = self.line.is_empty() && self.cancels.is_empty() && self.held.is_empty() && !starving;
        let (completions, timeout) = match until {
            Until::Now => (0, None),
            _ if !may_block => (0, None),
            Until::For(span) => (1, Some(pause.map_or(span, |pause| pause.min(span)))),
            Until::News => (1, pause),
        };
        self.counters.waits += 1;
        let no_iowait = self.abilities.no_iowait;
        self.enter(Wait { completions, timeout, batch_for: None, no_iowait })?;
        self.take(out)
    }

    fn alarm(&self) -> Option<Arc<OwnedFd>> {
        Some(Arc::clone(&self.kernel.alarm))
    }

    fn pool(&self) -> &Rc<Pool> {
        &self.kernel.pool
    }

    fn sends_from_pool(&self) -> bool {
        true
    }

    fn sends_without_copy(&self, on: Target, bytes: usize) -> bool {
        self.zero_copy.is_worth_it(on, bytes)
    }

    fn lent(&self) -> usize {
        self.zero_copy.lent()
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn counters(&self) -> Counters {
        let used = self.kernel.table.as_ref().map_or(0, FileTable::used);
        Counters { places_used: used.into(), ..self.counters }
    }

    /// Waits at most `patience` for operations in flight. If one is left, what the kernel may access is never
    /// freed.
    fn abandon(mut self: Box<Self>, patience: Duration) {
        self.patience = patience;
    }
}

/// Makes an entry with the descriptor's number, or with its place as a fixed file.
#[inline]
fn at(on: Target, make: impl FnOnce(i32) -> Sqe) -> Sqe {
    let entry = make(on.place().map_or(on.number, |place| place as i32));
    if on.is_direct() { entry.fixed_file() } else { entry }
}

/// Returns whether an error of `io_uring_enter(2)` is temporary. EBUSY: completions have overflowed and must
/// be taken first. EBADR is not temporary: a completion was lost, so the state of the ring is unknown.
fn is_passing(why: &io::Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN))
}
