//! The io_uring driver: operations become entries of a ring; one `io_uring_enter` per turn hands them over and
//! waits for what comes back.
//!
//! The kernel does the waiting and the attempting, so there is little state here: what an operation names is
//! kept by its slot, and the completion carries the slot's token. Here is what is handed over, and when; what comes
//! back is read in `completion`, and the ring is made in `setup`. Left to others: the queues and the buffer ring
//! ([`ringroad_uring`]), who owns memory (`inflight`).
//!
//! An operation is in one place at a time, told by `holds`: in `starved` or in `line`, where the kernel has not seen
//! it; in the submission queue or with the kernel; or out. Why some wait:
//!
//! - `starved`: a receive that would find the buffer ring empty would only be told so. It goes on once buffers
//!   are back.
//! - `line`: the submission queue is full, or as much was handed over this turn as the completion queue can
//!   hold. The bound is per turn and not on what is in flight: operations that wait for peers may be any number,
//!   and one that waited behind them could be the very one their peers wait for.
//!
//! Start reading at [`Uring::wait`].

mod accept;
mod completion;
mod direct;
mod file;
pub(crate) mod setup;
#[cfg(test)]
mod tests;
mod zero_copy;

use super::features::ZeroCopy;
use super::{Cancelled, Driver, Name, Settings};
use crate::clock::{Clock, Moment, Until};
use crate::counters::Counters;
use crate::op::{Answer, Call, Completion, FileOp, Kind, Op, Outcome, Target, Token};
use crate::pool::Pool;
use crate::sys::attempt::{self, bounded};
use crate::sys::call::{self, Blocking};
use crate::{Error, Result};
use ringroad_uring::{Cqe, FileTable, Ring, Sqe, Wait};
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Cancels that missed are sent again at most this often.
const AGAIN: Duration = Duration::from_millis(10);

/// The buffer group of the standing receives.
const GROUP: u16 = 0;

// A completion carries the token, and in the four top bits of its index what it is a completion of. (There are
// fewer slots than descriptors, and fewer descriptors than 2^28.)
const TAG: u64 = 7 << 28;
const ONE_SHOT: u64 = 0;
const RECEIVE: u64 = 1 << 29;
/// What brings a descriptor: accepts, and opens.
const DESCRIPTOR: u64 = 2 << 29;
/// A wait for room, on behalf of what is attempted then.
const ROOM: u64 = 3 << 29;
/// A send from where its bytes lie, which completes twice.
const ZERO_COPY: u64 = 1 << 28;
/// Of the cancel of what the other bits say.
const CANCEL: u64 = 1 << 31;
/// Of the read from the alarm. No slot has this index.
const ALARM: u64 = !CANCEL;
/// Of what is waited for by itself ([`Uring::at_once`]). Nor this one.
const AT_ONCE: u64 = ALARM - 1;

pub(crate) struct Uring {
    kernel: ManuallyDrop<Shared>,
    /// Entries handed over whose last completion was not taken. Cancels are not counted: they name no memory.
    in_flight: u64,
    /// What may still be handed over in this turn.
    room: u32,
    /// Operations not handed over yet, in order, with what their completions will carry.
    line: VecDeque<(u64, Sqe)>,
    /// Receives that wait for a buffer in the ring, each once: on what, and whether they stand.
    starved: VecDeque<(u64, (Target, bool))>,
    /// What is to be cancelled, as its completion will carry it.
    cancels: Vec<u64>,
    /// Likewise what a cancel was handed over for in vain, and from when on the next may be.
    missed: Vec<u64>,
    again_from: Moment,
    /// By slot: where its operation is.
    holds: Vec<Hold>,
    /// Completions that are taken and not told, in order: one that was too long for its turn, and what came while something
    /// else was waited for by itself.
    held: VecDeque<Cqe>,
    accepting: accept::Accepting,
    /// Places in the table of connections, at most; `None`: as many as the kernel allows and are usual.
    places: Option<u32>,
    zero_copy: zero_copy::ZeroCopy,
    /// Of the ring itself, met where it could not be told.
    failed: Option<io::Error>,
    abilities: Abilities,
    clock: Clock,
    counters: Counters,
}

/// What the kernel can reach. Freed only when it has let go of everything.
struct Shared {
    ring: Ring,
    /// Connections that have no descriptor. Made when the first becomes one of them.
    table: Option<FileTable>,
    pool: Rc<Pool>,
    alarm: Arc<OwnedFd>,
    /// Where the alarm is read to.
    alarm_count: Box<UnsafeCell<u64>>,
}

/// Where the operation of a slot is. The next operation of a slot may have the token of the one before: only here
/// is told whether a cancel is for one that is still held.
#[derive(Clone, Copy, Debug)]
struct Hold {
    generation: u32,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Not with us: never was, or its last completion has been told.
    Out,
    /// In line, or starved.
    Waiting,
    /// Handed over.
    Kernel,
    /// Handed over, and to be cancelled: it is in `cancels` or in `missed`.
    Doomed,
    /// Handed over, and so is its cancel.
    Cancelled,
}

/// What this kernel has, and may be used.
#[derive(Clone, Copy, Debug)]
struct Abilities {
    multishot_accept: bool,
    no_iowait: bool,
    bundles: bool,
    files: file::Files,
    zero_copy: ZeroCopy,
}

impl Uring {
    /// Makes a ring for the thread that calls this.
    ///
    /// # Errors
    /// What `io_uring_setup(2)` says, with what to do; what the kernel lacks, by name.
    pub(crate) fn new(settings: &Settings) -> Result<Uring> {
        let (shared, abilities) = setup::make(settings)?;
        let mut driver = Uring {
            kernel: ManuallyDrop::new(shared),
            in_flight: 0,
            room: 0,
            line: VecDeque::new(),
            starved: VecDeque::new(),
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
            counters: Counters::default(),
        };
        driver.room = driver.kernel.ring.completions().entries();
        driver.watch_alarm();
        Ok(driver)
    }

    /// Hands an operation over, or has it wait in line; nothing overtakes.
    #[inline]
    fn push(&mut self, bits: u64, entry: Sqe) {
        let waiting = match self.line.is_empty() {
            true => self.fill(bits, entry).err(),
            false => Some(entry),
        };
        if let Some(entry) = waiting {
            self.put(bits, Place::Waiting);
            self.line.push_back((bits, entry));
        }
    }

    /// Hands an operation over, or gives it back if there is no room.
    #[inline]
    fn fill(&mut self, bits: u64, entry: Sqe) -> std::result::Result<(), Sqe> {
        self.write(entry.user_data(bits))?;
        self.in_flight += 1;
        self.put(bits, Place::Kernel);
        Ok(())
    }

    /// Remembers where an operation is.
    #[inline]
    fn put(&mut self, bits: u64, place: Place) {
        let Token { index, generation } = Token::from_bits(bits & !TAG);
        let index = index as usize;
        if index >= self.holds.len() {
            if bits == ALARM {
                return;
            }
            self.holds.resize(index + 1, Hold { generation, place: Place::Out });
        }
        self.holds[index] = Hold { generation, place };
    }

    /// Where the operation with this token is, if that is known of this life of its slot.
    #[inline]
    fn hold(&mut self, bits: u64) -> Option<&mut Place> {
        let Token { index, generation } = Token::from_bits(bits & !TAG);
        let hold = self.holds.get_mut(index as usize)?;
        (hold.generation == generation).then_some(&mut hold.place)
    }

    /// Writes an entry into the submission queue, or gives it back if there is no room in this turn.
    #[inline]
    fn write(&mut self, entry: Sqe) -> std::result::Result<(), Sqe> {
        if self.room == 0 {
            return Err(entry);
        }
        if self.kernel.ring.submissions().is_full() {
            self.counters.queue_full += 1;
            self.hand_over();
        }
        let Some(slot) = self.kernel.ring.submissions().reserve() else { return Err(entry) };
        // SAFETY: what an operation names stays in place and untouched until we have told its last completion:
        // that is the contract of `Driver::submit`; what a send without a copy names does until its notification, by the
        // owner that `zero_copy` keeps. The alarm's memory and the buffers that receives select are
        // in `Shared`, freed only when nothing is in flight (`drop`). Cancels name no memory.
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

    /// Asks to be woken by the alarm.
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

    /// Buffers in the ring, as far as completions have told.
    #[inline]
    fn buffers_offered(&self) -> u16 {
        self.kernel.pool.with_ring(|ring| ring.entries() - ring.outstanding()).unwrap_or_default()
    }

    /// Gives free buffers back to the ring, and lets those receive that waited for them.
    #[inline]
    fn refill(&mut self) {
        self.kernel.pool.refill(|ring, free| {
            free.drain(..).for_each(|id| ring.stage(id));
            ring.offer();
        });
        if !self.starved.is_empty() {
            self.feed_the_starved();
        }
    }

    /// As many as there are buffers: more would only be told again that there is none.
    #[cold]
    fn feed_the_starved(&mut self) {
        for _ in 0..self.buffers_offered() {
            let Some((bits, (on, stands))) = self.starved.pop_front() else { break };
            let entry = self.receive(on, stands);
            self.push(bits, entry);
        }
    }

    /// Sends the cancels again that missed, if that was not done of late; otherwise, how long the next wait may last. The
    /// kernel answers at once: what waits for a disk, or is under way on a thread of the kernel's, would have us ask without
    /// a pause for as long as it takes.
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

    /// Hands cancels over, as far as there is room; a success needs no answer.
    #[cold]
    fn flush_cancels(&mut self) {
        while let Some(bits) = self.cancels.pop() {
            // What has completed meanwhile, and perhaps begun anew, is left alone.
            if self.hold(bits).is_none_or(|place| *place != Place::Doomed) {
                continue;
            }
            if self.write(Sqe::cancel(bits).user_data(bits | CANCEL).skip_success()).is_err() {
                return self.cancels.push(bits);
            }
            self.put(bits, Place::Cancelled);
        }
    }

    /// Moves what waits in line into the queue, as far as there is room.
    #[cold]
    fn advance_line(&mut self) {
        while let Some((bits, entry)) = self.line.pop_front() {
            if let Err(entry) = self.fill(bits, entry) {
                return self.line.push_front((bits, entry));
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
    fn name(&self) -> Name {
        Name::IoUring
    }

    fn call(&mut self, call: Call<'_>) -> io::Result<Answer> {
        if let Call::Close { on, .. } = call {
            self.zero_copy.forget(on.index);
        }
        if call.target().is_some_and(|on| on.is_direct()) {
            return self.call_by_place(call);
        }
        call::perform(call, Blocking::Yes, &mut self.counters)
    }

    fn tries(&self) -> bool {
        false
    }

    /// Never: the kernel attempts what it is handed, many in one system call. But io_uring has no `sendfile`: to
    /// splice through a pipe takes a thread of the kernel's for each half. And of a Unix datagram it would send an empty
    /// one in the end: where there is no room at the receiver, the first attempt has used its bytes up (Linux 6.18:
    /// `unix_dgram_sendmsg` copies them before it looks). So these two are called here, and the ring only waits for room.
    fn attempt(&mut self, op: &Op<'_>) -> Option<Outcome> {
        let result = match *op {
            Op::SendFile { on, .. } if on.is_direct() => -libc::EOPNOTSUPP,
            // Sockets wait here (`Blocking::Yes`), and the kernel looks at that when it begins an operation. It begins
            // none of this ring's meanwhile: that happens within `enter`.
            Op::SendFile { on, file, at, bytes } => {
                attempt::send_file_at_once(on.number, file, at, bytes, &mut self.counters)
            }
            // SAFETY: an attempt's memory is the caller's, who lends it for the call (`Op`, `op_of`).
            Op::SendUnixMessage { on, message } => unsafe {
                attempt::send_now(on.number, message, &mut self.counters)
            },
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
        // A peer that is gone is EPIPE, never a signal. WAITALL: the kernel goes on after a short send by itself.
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        match *op {
            Op::Receive { on } | Op::ReceiveOne { on } => {
                let bits = bits | RECEIVE;
                let stands = matches!(op, Op::Receive { .. });
                if self.buffers_offered() == 0 {
                    self.put(bits, Place::Waiting);
                    return self.starved.push_back((bits, (on, stands)));
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
            Op::SendFile { on, .. } | Op::SendUnixMessage { on, .. } => {
                self.push(bits | ROOM, Sqe::poll_add(on.number, libc::POLLOUT as u32));
            }
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
                let flags = Blocking::Yes.socket_flags();
                let entry = match self.may_accept_ahead() {
                    true => Sqe::accept_multishot(on.number, flags),
                    false => Sqe::accept(on.number, flags),
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
            Kind::SendFile | Kind::SendUnixMessage => ROOM,
        };
        let bits = token.to_bits() | tag;
        match self.hold(bits) {
            // The kernel has not seen it.
            Some(place @ Place::Waiting) => {
                *place = Place::Out;
                let _ = remove(&mut self.line, bits) || remove(&mut self.starved, bits);
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
        // What found no room is handed over in the next turn, which must come soon; so is what was starved while
        // there are buffers: those fed first may have nothing to receive, and those behind them have. Completions
        // that are there already end a wait before it begins.
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

    /// Waits a second for the kernel to let go; if it does not, what it may touch is never freed.
    fn abandon(self: Box<Self>) {}
}

/// An entry made with this descriptor's number; or with its place, which the entry then says.
#[inline]
fn at(on: Target, make: impl FnOnce(i32) -> Sqe) -> Sqe {
    let entry = make(on.place().map_or(on.number, |place| place as i32));
    if on.is_direct() { entry.fixed_file() } else { entry }
}

/// Takes what will complete as `bits` out of a queue. Whether it was there.
fn remove<T>(queue: &mut VecDeque<(u64, T)>, bits: u64) -> bool {
    let at = queue.iter().position(|(waiting, _)| *waiting == bits);
    at.and_then(|at| queue.remove(at)).is_some()
}

/// Errors of `io_uring_enter(2)` that are over by the next call: EBUSY when completions overflowed and must be
/// taken first. EBADR is none of them: a completion was lost, and what the ring tells is no longer true.
fn is_passing(why: &io::Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN))
}
