//! One operation's way, from the future to the driver and back.
//!
//! [`Io`] joins the driver, the slots and the table of descriptors. Futures poll it; the executor turns it
//! ([`Io::turn`]). It runs no user code: who is to be woken is put in `wakes`, wakers to be dropped in `trash`,
//! and the executor sees to both when nothing is borrowed.
//!
//! Every operation is attempted first (drivers that do not try say so at once), then submitted. What a dropped
//! operation brings is disposed of in one place, [`Io::dispose`].

use crate::buf::{Buf, filled, spare_of};
use crate::clock::{Moment, Until};
use crate::counters::Counters;
use crate::descriptor::{Descriptor, Entry, Mark, NONE, Table};
use crate::driver::{Cancelled, Driver};
use crate::error::{Error, Result};
use crate::inflight::{Effect, Inflight, Memory, Next, Remains, State, op_of};
use crate::name::Name;
use crate::op::{Answer, Call, Completion, Kind, News, Op, Outcome, Target, Token};
use crate::option::SocketOption;
use crate::pool::{Lease, Tail};
use std::os::fd::{FromRawFd, OwnedFd};
use std::task::{Poll, Waker};
use std::time::Duration;

/// Operations answered at once that a task may have in one poll; then it yields, so that a peer that always has
/// data ready does not keep everybody else waiting.
pub(crate) const ANSWERS_PER_POLL: u32 = 64;

/// How long accepting pauses when no descriptor is left, unless one is closed before.
const PARKED_FOR: Duration = Duration::from_secs(1);

/// The I/O of one runtime.
pub(crate) struct Io {
    driver: Box<dyn Driver>,
    /// The driver answers attempts: not asking one that never does spares a call.
    tries: bool,
    slots: Inflight,
    pub(crate) table: Table,
    completions: Vec<Completion>,
    /// Standing operations that have reached their credit in this turn, and their entries in the table.
    exhausted: Vec<(Token, u32)>,
    /// To be woken.
    pub(crate) wakes: Vec<Waker>,
    /// To be dropped.
    pub(crate) trash: Vec<Waker>,
    /// Who waits for a descriptor to be closed.
    closers: Vec<(Target, Waker)>,
    /// Listeners that found no descriptor left.
    parked: Vec<Waker>,
    parked_until: Option<Moment>,
    /// The clock as last read.
    pub(crate) now: Moment,
    /// Immediate answers left to the task that runs.
    pub(crate) answers_left: u32,
    counters: Counters,
}

/// A send. It owns the memory except while a slot does.
#[derive(Debug)]
pub(crate) struct Sending {
    memory: Memory,
    kind: Kind,
    stage: Stage,
    /// Bytes sent before there was a slot.
    done: u32,
}

/// Where a send is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not with the driver yet.
    Fresh,
    InFlight(Token),
    Over,
}

impl Sending {
    #[inline]
    pub(crate) fn new(kind: Kind, memory: Memory) -> Sending {
        Sending { memory, kind, stage: Stage::Fresh, done: 0 }
    }

    /// Its result is known, and its memory is here.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Ends one that was not submitted.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.stage = Stage::Over;
    }

    /// The memory, out of one that is over.
    #[inline]
    pub(crate) fn take_memory(&mut self) -> Memory {
        std::mem::replace(&mut self.memory, Memory::None)
    }
}

/// A one-shot operation in a slot.
#[derive(Debug)]
pub(crate) enum OneShot {
    Fresh(Memory),
    InFlight(Token),
    Over(Memory),
}

impl Io {
    pub(crate) fn new(driver: Box<dyn Driver>) -> Io {
        let now = driver.clock().now();
        Io {
            tries: driver.tries(),
            driver,
            slots: Inflight::new(),
            table: Table::new(),
            completions: Vec::with_capacity(crate::COMPLETIONS_PER_TURN),
            exhausted: Vec::new(),
            wakes: Vec::new(),
            trash: Vec::new(),
            closers: Vec::new(),
            parked: Vec::new(),
            parked_until: None,
            now,
            answers_left: ANSWERS_PER_POLL,
            counters: Counters::default(),
        }
    }

    pub(crate) fn driver_name(&self) -> Name {
        self.driver.name()
    }

    pub(crate) fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    /// Does what never waits.
    pub(crate) fn call(&mut self, call: Call<'_>) -> Result<Answer> {
        let name = call.name();
        self.driver.call(call).map_err(|why| Error::new(name, why).by(self.driver.name()))
    }

    /// Takes a new descriptor in.
    pub(crate) fn open(&mut self, descriptor: Descriptor) -> Target {
        self.table.insert(descriptor)
    }

    /// A failed operation on a descriptor, as an error.
    #[cold]
    pub(crate) fn error(&mut self, kind: Kind, index: u32, result: i32) -> Error {
        let error = Error::errno(kind.name(), -result).by(self.driver.name());
        let on = self.table.target(index);
        // Best effort: whose connection it was says more than a number.
        let peer = match kind {
            Kind::Accept => self.driver.call(Call::LocalName { on }),
            _ => self.driver.call(Call::PeerName { on }),
        };
        match peer {
            Ok(Answer::Name(name)) => error.on(name),
            _ => error.on(format_args!("descriptor {}", on.number)),
        }
    }

    #[inline]
    fn attempt(&mut self, op: &Op<'_>) -> Option<Outcome> {
        let outcome = self.driver.attempt(op)?;
        self.answers_left = self.answers_left.saturating_sub(1);
        self.counters.answered_at_once += 1;
        Some(outcome)
    }

    /// Used up its answers: the task goes to the back of the queue.
    #[inline]
    fn must_yield(&mut self, waker: &Waker) -> bool {
        if self.answers_left > 0 {
            return false;
        }
        self.wakes.push(waker.clone());
        true
    }

    /// Hands a queued operation to the driver.
    #[inline]
    fn submit(&mut self, token: Token, index: u32) {
        let on = self.table.target(index);
        self.driver.submit(token, &self.slots.op(token, on));
        self.slots.hand_over(token);
        self.table.entry(index).with_driver += 1;
        self.counters.submitted += 1;
    }

    #[inline]
    fn wait_for(&mut self, token: Token, waker: &Waker) {
        if let Some(before) = self.slots.set_waker(token, waker) {
            self.trash.push(before);
        }
    }

    // ---- standing operations: receive and accept ------------------------------------------------------------

    /// Received bytes; none at the end of the stream.
    #[inline]
    pub(crate) fn poll_receive(
        &mut self,
        index: u32,
        waker: &Waker,
    ) -> Poll<std::result::Result<Lease, i32>> {
        if self.must_yield(waker) {
            return Poll::Pending;
        }
        let entry = self.table.entry(index);
        if entry.has_left_something() {
            return Poll::Ready(Self::left(entry));
        }
        // What happens nearly always: it stands already, and has brought nothing.
        let slot = entry.receive;
        if slot != NONE
            && let Some(standing) = self.slots.empty_handed(slot, Kind::Receive)
        {
            let on = entry.target(index);
            loop {
                let received = if self.tries { self.driver.attempt_receive(on) } else { None };
                match received {
                    None => {
                        if let Some(before) = standing.wait(waker) {
                            self.trash.push(before);
                        }
                        return Poll::Pending;
                    }
                    Some(Err(errno)) if errno == -libc::EINTR => {}
                    Some(received) => {
                        standing.serve();
                        self.counters.answered_at_once += 1;
                        self.answers_left -= 1;
                        if received.as_ref().is_ok_and(Lease::is_nothing) {
                            entry.mark(Mark::Ended);
                        }
                        return Poll::Ready(received);
                    }
                }
            }
        }
        self.poll_receive_standing(index, waker)
    }

    fn poll_receive_standing(&mut self, index: u32, waker: &Waker) -> Poll<std::result::Result<Lease, i32>> {
        self.poll_standing(Kind::Receive, index, waker).map(|outcome| {
            let received = outcome.received();
            if received.as_ref().is_ok_and(Lease::is_nothing) {
                self.table.entry(index).mark(Mark::Ended);
            }
            received
        })
    }

    /// What earlier receives have left for the next.
    #[cold]
    fn left(entry: &mut Entry) -> std::result::Result<Lease, i32> {
        if let Some(tail) = entry.kept.take() {
            return Ok(Lease::own(tail));
        }
        match entry.take_error() {
            0 => Ok(Lease::nothing()),
            errno => Err(errno),
        }
    }

    /// The next connection, as an entry of the table.
    pub(crate) fn poll_accept(
        &mut self,
        index: u32,
        waker: &Waker,
    ) -> Poll<std::result::Result<Target, i32>> {
        loop {
            if self.must_yield(waker) {
                return Poll::Pending;
            }
            if self.table.entry(index).is(Mark::Stopped) && self.table.entry(index).receive == NONE {
                return Poll::Ready(Err(-libc::ECANCELED));
            }
            let outcome = match self.poll_standing(Kind::Accept, index, waker) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(outcome) => outcome,
            };
            match -outcome.result {
                ..=0 => {
                    let descriptor = self.descriptor(outcome.result);
                    return Poll::Ready(Ok(self.open(descriptor)));
                }
                libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM => {
                    if self.table.entry(index).is(Mark::Stopped) {
                        return Poll::Ready(Err(-libc::ECANCELED));
                    }
                    self.counters.accept_parked += 1;
                    self.parked.push(waker.clone());
                    self.parked_until = Some(self.now.after(PARKED_FOR));
                    return Poll::Pending;
                }
                libc::ECANCELED | libc::EBADF | libc::EINVAL | libc::ENOTSOCK | libc::EOPNOTSUPP => {
                    return Poll::Ready(Err(outcome.result));
                }
                // One connection died in the backlog, or its network did (accept(2), "Error handling").
                _ => {}
            }
        }
    }

    /// An item or the end of a standing operation, armed as need be.
    fn poll_standing(&mut self, kind: Kind, index: u32, waker: &Waker) -> Poll<Outcome> {
        let slot = self.table.entry(index).receive;
        let token = if slot == NONE {
            if let Some(outcome) = self.attempt_standing(kind, index) {
                return Poll::Ready(outcome);
            }
            let items = Memory::Items(crate::inflight::Items::EMPTY);
            let token = self.slots.insert(kind, index, items, 0, self.now);
            self.table.entry(index).receive = token.index;
            self.submit(token, index);
            token
        } else {
            let token = self.slots.token(slot);
            if self.slots.kind(token) != kind {
                // A dropped receive into memory of the caller's, still on its way: its end tells us.
                self.wait_for(token, waker);
                return Poll::Pending;
            }
            match self.slots.next(token) {
                Next::Item(outcome) => {
                    self.answers_left -= 1;
                    return Poll::Ready(outcome);
                }
                Next::Empty => {
                    if let Some(outcome) = self.attempt_standing(kind, index) {
                        self.slots.served(slot);
                        return Poll::Ready(outcome);
                    }
                }
                Next::Again if self.table.entry(index).is(Mark::Stopped) => {
                    self.slots.release(token);
                    self.table.entry(index).receive = NONE;
                    return Poll::Ready(Outcome::of(-libc::ECANCELED));
                }
                Next::Again => {
                    if let Some(outcome) = self.attempt_standing(kind, index) {
                        return Poll::Ready(outcome);
                    }
                    self.counters.retries += 1;
                    self.submit(token, index);
                }
                Next::Over(result) => {
                    self.table.entry(index).receive = NONE;
                    return Poll::Ready(Outcome::of(result));
                }
            }
            token
        };
        self.wait_for(token, waker);
        Poll::Pending
    }

    #[inline]
    fn attempt_standing(&mut self, kind: Kind, index: u32) -> Option<Outcome> {
        if !self.tries {
            return None;
        }
        let on = self.table.target(index);
        let op = if kind == Kind::Accept { Op::Accept { on } } else { Op::Receive { on } };
        loop {
            let outcome = self.attempt(&op)?;
            if outcome.result != -libc::EINTR {
                return Some(outcome);
            }
        }
    }

    /// Nobody waits for this descriptor's standing operation any more; it goes on.
    #[inline]
    pub(crate) fn leave_standing(&mut self, index: u32) {
        let slot = self.table.entry(index).receive;
        if slot != NONE {
            let token = self.slots.token(slot);
            self.trash.extend(self.slots.clear_waker(token));
        }
    }

    // ---- sends ----------------------------------------------------------------------------------------------

    /// Sends, all of it or (`all` unset) what goes: how much was sent altogether, or a negated errno. When it is
    /// ready, `sending` is over.
    #[inline]
    pub(crate) fn poll_send(
        &mut self,
        index: u32,
        sending: &mut Sending,
        all: bool,
        waker: &Waker,
    ) -> Poll<std::result::Result<u32, i32>> {
        if self.must_yield(waker) {
            return Poll::Pending;
        }
        let entry = self.table.entry(index);
        // What happens nearly always: all of it goes at once.
        if self.tries
            && sending.stage == Stage::Fresh
            && sending.done == 0
            && let Memory::Buf(buf) = &sending.memory
            && entry.send == NONE
            && !entry.is(Mark::Broken)
        {
            let bytes = buf.span_after(0);
            if bytes.bytes > 0
                && let Some(sent) = self.driver.attempt_send(entry.target(index), bytes)
            {
                self.counters.answered_at_once += 1;
                self.answers_left -= 1;
                if sent >= 0 && (!all || sent as usize >= bytes.bytes) {
                    sending.end();
                    return Poll::Ready(Ok(sent as u32));
                }
                if sent >= 0 {
                    sending.done = sent as u32;
                } else if sent != -libc::EINTR {
                    sending.end();
                    return Poll::Ready(Err(sent));
                }
            }
        }
        self.poll_send_slowly(index, sending, all, waker)
    }

    /// As [`Io::poll_send`], whatever the case.
    fn poll_send_slowly(
        &mut self,
        index: u32,
        sending: &mut Sending,
        all: bool,
        waker: &Waker,
    ) -> Poll<std::result::Result<u32, i32>> {
        match sending.stage {
            Stage::Fresh => {}
            Stage::InFlight(token) => return self.poll_sending(index, sending, token, all, waker),
            Stage::Over => unreachable!("a send is polled after its end"),
        }
        let entry = self.table.entry(index);
        if entry.is(Mark::Broken) {
            sending.end();
            return Poll::Ready(Err(-libc::EPIPE));
        }
        if entry.send != NONE {
            // A dropped send, still on its way: what follows it must not overtake it.
            let token = self.slots.token(entry.send);
            self.wait_for(token, waker);
            return Poll::Pending;
        }
        let Sending { memory, kind, done, .. } = sending;
        let total = memory.bytes();
        if total == 0 {
            sending.end();
            return Poll::Ready(Ok(0));
        }
        if self.tries {
            let on = entry.target(index);
            loop {
                match self.attempt(&op_of(*kind, memory, *done as usize, on)).map(|outcome| outcome.result) {
                    None => break,
                    Some(sent) if sent >= 0 => {
                        *done += sent as u32;
                        if !all || *done as usize >= total {
                            let done = *done;
                            sending.end();
                            return Poll::Ready(Ok(done));
                        }
                    }
                    Some(errno) if errno == -libc::EINTR => {}
                    Some(errno) => {
                        sending.end();
                        return Poll::Ready(Err(errno));
                    }
                }
            }
        }
        if !self.driver.sends_from_pool() || self.driver.pool().is_strained() {
            memory.settle();
        }
        let memory = std::mem::replace(memory, Memory::None);
        let token = self.slots.insert(*kind, index, memory, *done, self.now);
        self.table.entry(index).send = token.index;
        self.submit(token, index);
        self.wait_for(token, waker);
        sending.stage = Stage::InFlight(token);
        Poll::Pending
    }

    fn poll_sending(
        &mut self,
        index: u32,
        sending: &mut Sending,
        token: Token,
        all: bool,
        waker: &Waker,
    ) -> Poll<std::result::Result<u32, i32>> {
        let mut result = Ok(());
        match self.slots.state(token) {
            State::Done => match self.slots.result(token) {
                sent if sent >= 0 => {
                    *self.slots.done(token) += sent as u32;
                    let over = !all || {
                        let done = *self.slots.done(token) as usize;
                        done >= self.slots.memory(token).bytes()
                    };
                    if !over && self.slots.is_cancel_asked(token) {
                        result = Err(-libc::ECANCELED);
                    } else if !over {
                        self.slots.requeue(token);
                    }
                }
                errno if matches!(-errno, libc::EINTR | libc::EAGAIN) => {
                    if self.slots.is_cancel_asked(token) {
                        result = Err(-libc::ECANCELED);
                    } else {
                        self.slots.requeue(token);
                    }
                }
                errno => result = Err(errno),
            },
            State::Queued => {}
            _ => {
                self.wait_for(token, waker);
                return Poll::Pending;
            }
        }
        while self.slots.state(token) == State::Queued {
            let on = self.table.target(index);
            let total = self.slots.memory(token).bytes();
            let op = self.slots.op(token, on);
            // `attempt` needs all of `self`; the operation borrows only the slots. So the driver is asked directly.
            match self.driver.attempt(&op).map(|outcome| outcome.result) {
                None => {
                    self.counters.retries += 1;
                    self.submit(token, index);
                    self.wait_for(token, waker);
                    return Poll::Pending;
                }
                Some(sent) if sent >= 0 => {
                    let done = self.slots.done(token);
                    *done += sent as u32;
                    if !all || *done as usize >= total {
                        break;
                    }
                }
                Some(errno) if errno == -libc::EINTR => {}
                Some(errno) => {
                    result = Err(errno);
                    break;
                }
            }
        }
        let done = *self.slots.done(token);
        self.table.entry(index).send = NONE;
        self.trash.extend(self.slots.clear_waker(token));
        sending.memory = self.slots.release(token);
        sending.end();
        Poll::Ready(result.map(|()| done))
    }

    /// The future of a send is dropped.
    pub(crate) fn drop_send(&mut self, index: u32, sending: &Sending) {
        match sending.stage {
            Stage::Fresh => {
                if sending.done > 0 {
                    self.table.entry(index).mark(Mark::Broken);
                }
            }
            Stage::InFlight(token) => self.abandon(token, index),
            Stage::Over => {}
        }
    }

    // ---- one-shot operations: connect, receive into the caller's memory --------------------------------------

    /// Ready with the result as the kernel gives it.
    pub(crate) fn poll_one_shot(
        &mut self,
        kind: Kind,
        index: u32,
        operation: &mut OneShot,
        waker: &Waker,
    ) -> Poll<i32> {
        if self.must_yield(waker) {
            return Poll::Pending;
        }
        let on = self.table.target(index);
        let token = match operation {
            OneShot::Fresh(memory) => {
                loop {
                    match self.attempt(&op_of(kind, memory, 0, on)).map(|outcome| outcome.result) {
                        None => break,
                        Some(errno) if errno == -libc::EINTR => {}
                        Some(result) => {
                            *operation = OneShot::Over(std::mem::replace(memory, Memory::None));
                            return Poll::Ready(result);
                        }
                    }
                }
                let memory = std::mem::replace(memory, Memory::None);
                let token = self.slots.insert(kind, index, memory, 0, self.now);
                *Self::place(self.table.entry(index), kind) = token.index;
                self.submit(token, index);
                *operation = OneShot::InFlight(token);
                self.wait_for(token, waker);
                return Poll::Pending;
            }
            OneShot::InFlight(token) => *token,
            OneShot::Over(_) => unreachable!("polled after its end"),
        };
        let mut result = None;
        if self.slots.state(token) == State::Done {
            match self.slots.result(token) {
                errno if matches!(-errno, libc::EINTR | libc::EAGAIN) => {
                    if self.slots.is_cancel_asked(token) {
                        result = Some(-libc::ECANCELED);
                    } else {
                        self.slots.requeue(token);
                    }
                }
                other => result = Some(other),
            }
        }
        while result.is_none() && self.slots.state(token) == State::Queued {
            match self.driver.attempt(&self.slots.op(token, on)).map(|outcome| outcome.result) {
                None => {
                    self.counters.retries += 1;
                    self.submit(token, index);
                }
                Some(errno) if errno == -libc::EINTR => {}
                other => result = other,
            }
        }
        let Some(result) = result else {
            self.wait_for(token, waker);
            return Poll::Pending;
        };
        *Self::place(self.table.entry(index), kind) = NONE;
        self.trash.extend(self.slots.clear_waker(token));
        *operation = OneShot::Over(self.slots.release(token));
        Poll::Ready(result)
    }

    /// Receives into the caller's memory; Ready with how many bytes were appended to it.
    pub(crate) fn poll_receive_into(
        &mut self,
        index: u32,
        operation: &mut OneShot,
        waker: &Waker,
    ) -> Poll<std::result::Result<usize, i32>> {
        if let OneShot::Fresh(Memory::Buf(buf)) = operation {
            let (start, room) = spare_of(buf);
            let entry = self.table.entry(index);
            let elsewhere = entry.receive != NONE || entry.has_left_something();
            if room == 0 {
                return Poll::Ready(Ok(0));
            }
            if elsewhere {
                // A receive is armed already, or has left something: what comes is copied from there.
                let mut lease = match self.poll_receive(index, waker) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(received) => received?,
                };
                let bytes = room.min(lease.len());
                // SAFETY: `room` bytes from `start` are the buffer's spare memory, which nobody else reaches, and
                // which is not the lease's; `bytes` of them are written here, so they are filled.
                unsafe {
                    std::ptr::copy_nonoverlapping(lease.as_ptr(), start.as_ptr(), bytes);
                    filled(buf, bytes);
                }
                if bytes < lease.len() {
                    lease.advance(bytes);
                    self.table.entry(index).kept = Some(lease.into_tail());
                }
                return Poll::Ready(Ok(bytes));
            }
        }
        let result = match self.poll_one_shot(Kind::ReceiveInto, index, operation, waker) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(result) => result,
        };
        if result < 0 {
            return Poll::Ready(Err(result));
        }
        if result == 0 {
            self.table.entry(index).mark(Mark::Ended);
        }
        if let OneShot::Over(Memory::Buf(buf)) = operation {
            // SAFETY: the driver said, with the last completion, that it wrote so many bytes into the spare room.
            unsafe { filled(buf, result as usize) };
        }
        Poll::Ready(Ok(result as usize))
    }

    /// The future of a one-shot operation is dropped.
    pub(crate) fn drop_one_shot(&mut self, index: u32, operation: &OneShot) {
        if let OneShot::InFlight(token) = operation {
            self.abandon(*token, index);
        }
    }

    /// Which of an entry's two places an operation has.
    fn place(entry: &mut Entry, kind: Kind) -> &mut u32 {
        match kind {
            Kind::Accept | Kind::Receive | Kind::ReceiveInto => &mut entry.receive,
            Kind::Connect | Kind::Send | Kind::SendVectored => &mut entry.send,
        }
    }

    // ---- ends -----------------------------------------------------------------------------------------------

    /// An operation loses its future: it is cancelled, and its memory kept until the driver has let go.
    fn abandon(&mut self, token: Token, index: u32) {
        let kind = self.slots.kind(token);
        let on = self.table.target(index);
        let outcome = match self.slots.state(token) {
            State::Submitted | State::Armed => {
                self.counters.cancels += 1;
                match self.driver.cancel(token, kind, on) {
                    Cancelled::Asked => {
                        self.counters.orphaned += 1;
                        while let Some(outcome) = self.slots.untaken(token) {
                            self.dispose_outcome(kind, index, outcome);
                        }
                        self.trash.extend(self.slots.orphan(token, self.now));
                        return;
                    }
                    Cancelled::Gone => {
                        self.slots.retract(token);
                        self.table.entry(index).with_driver -= 1;
                        Outcome::of(-libc::ECANCELED)
                    }
                }
            }
            State::Done if !kind.is_standing() => Outcome::of(self.slots.result(token)),
            _ => Outcome::of(-libc::ECANCELED),
        };
        while let Some(outcome) = self.slots.untaken(token) {
            self.dispose_outcome(kind, index, outcome);
        }
        let done = *self.slots.done(token);
        self.trash.extend(self.slots.clear_waker(token));
        let memory = self.slots.release(token);
        let remains = Remains { kind, descriptor: index, outcome, memory, done, waker: None, let_go: false };
        *Self::place(self.table.entry(index), kind) = NONE;
        self.dispose(remains);
    }

    /// What a dropped operation brought goes where it belongs.
    fn dispose(&mut self, remains: Remains) {
        let Remains { kind, descriptor: index, outcome, memory, done, .. } = remains;
        match kind {
            Kind::Accept | Kind::Receive => self.dispose_outcome(kind, index, outcome),
            Kind::Connect => {}
            Kind::ReceiveInto => {
                let entry = self.table.entry(index);
                match (outcome.result, memory) {
                    // The bytes are the next receive's.
                    (bytes, Memory::Buf(buf)) if bytes > 0 => entry.kept = kept(buf, bytes as usize),
                    (0, _) => entry.mark(Mark::Ended),
                    (errno, _) if !matches!(-errno, libc::ECANCELED | libc::EINTR | libc::EAGAIN) => {
                        entry.keep_error(errno);
                    }
                    _ => {}
                }
            }
            Kind::Send | Kind::SendVectored => {
                if done > 0 || outcome.result > 0 {
                    self.table.entry(index).mark(Mark::Broken);
                }
            }
        }
    }

    /// A standing operation is dropped when its descriptor is closed: nobody will ever take what it brought. Its
    /// peers hear what they would hear if the kernel still had it: a reset.
    fn dispose_outcome(&mut self, kind: Kind, index: u32, outcome: Outcome) {
        if kind == Kind::Accept && outcome.result >= 0 {
            let descriptor = self.descriptor(outcome.result);
            let on = self.open(descriptor);
            self.table.entry(on.index).mark(Mark::Unread);
            self.close(on.index);
        }
        if outcome.lease.is_some() {
            self.table.entry(index).mark(Mark::Unread);
        }
    }

    /// Asks the operations that somebody waits for on this descriptor to end. Each tells its true outcome.
    pub(crate) fn cancel(&mut self, on: Target, stop: bool) {
        if !self.table.is_open(on) {
            return;
        }
        let entry = self.table.entry(on.index);
        if stop {
            entry.mark(Mark::Stopped);
        }
        let slots = [entry.receive, entry.send];
        if stop {
            // It may be among those that wait for a descriptor.
            self.unpark();
        }
        for slot in slots {
            if slot == NONE {
                continue;
            }
            let token = self.slots.token(slot);
            if !self.slots.is_waited_for(token) && !stop {
                continue;
            }
            let kind = self.slots.kind(token);
            match self.slots.state(token) {
                State::Submitted | State::Armed => {
                    self.counters.cancels += 1;
                    self.slots.cancel_asked(token, self.now);
                    if self.driver.cancel(token, kind, on) == Cancelled::Gone {
                        self.slots.retract(token);
                        self.table.entry(on.index).with_driver -= 1;
                        if !kind.is_standing() {
                            self.slots.finish_cancelled(token);
                        }
                        self.wakes.extend(self.slots.take_waker(token));
                    }
                }
                State::Queued if !kind.is_standing() => {
                    self.slots.finish_cancelled(token);
                    self.wakes.extend(self.slots.take_waker(token));
                }
                // Its future is woken and has not looked: it takes what is there, and does not begin again.
                State::Done => self.slots.cancel_asked(token, self.now),
                _ => {}
            }
        }
    }

    /// The descriptor's owner is gone: cancel, reap every last completion, then close.
    pub(crate) fn close(&mut self, index: u32) {
        let entry = self.table.entry(index);
        debug_assert!(!entry.is(Mark::Closing), "closed twice");
        entry.mark(Mark::Closing);
        for slot in [entry.receive, entry.send] {
            if slot != NONE {
                let token = self.slots.token(slot);
                if self.slots.state(token) != State::Orphaned {
                    self.abandon(token, index);
                }
            }
        }
        self.close_if_over(index);
    }

    /// Ready once the descriptor is closed.
    pub(crate) fn poll_closed(&mut self, on: Target, waker: &Waker) -> Poll<()> {
        if !self.table.is_current(on) {
            return Poll::Ready(());
        }
        self.closers.push((on, waker.clone()));
        Poll::Pending
    }

    /// Closes the descriptor if nothing of it is with the driver any more.
    fn close_if_over(&mut self, index: u32) {
        let entry = self.table.entry(index);
        if !entry.is(Mark::Closing) || entry.with_driver > 0 {
            return;
        }
        let unread = entry.is(Mark::Unread) || entry.kept.is_some();
        let on = self.table.target(index);
        if unread {
            // As the kernel does with bytes that it still has (RFC 1122, 4.2.2.13), so that every driver does. Should
            // it fail, the peer sees an end instead.
            let option = SocketOption::Linger(Some(Duration::ZERO));
            let _ = self.driver.call(Call::SetOption { on, option });
        }
        if let Some(descriptor) = self.table.remove(index) {
            // The only error that matters, EBADF, would be a bug of ours; others come after it is closed.
            let closed = self.driver.call(Call::Close { on, descriptor });
            debug_assert!(
                !matches!(&closed, Err(why) if why.raw_os_error() == Some(libc::EBADF)),
                "{closed:?}"
            );
        }
        if !self.closers.is_empty() {
            for (_, waker) in self.closers.extract_if(.., |(target, _)| *target == on) {
                self.wakes.push(waker);
            }
        }
        self.unpark();
    }

    /// Listeners may try again.
    fn unpark(&mut self) {
        if !self.parked.is_empty() {
            self.wakes.append(&mut self.parked);
            self.parked_until = None;
        }
    }

    /// The kernel's number of something new, owned.
    fn descriptor(&self, number: i32) -> Descriptor {
        match self.driver.name() {
            Name::Sim => Descriptor::Sim(number as u32),
            // SAFETY: a driver tells this number once, as the result of an accept: the kernel has just opened it
            // for us, and nobody else knows it.
            _ => Descriptor::Os(unsafe { OwnedFd::from_raw_fd(number) }),
        }
    }

    // ---- the turn -------------------------------------------------------------------------------------------

    /// When listeners without descriptors try again.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        self.parked_until
    }

    /// Waits for news and takes it in. Errors end the runtime.
    pub(crate) fn turn(&mut self, until: Until) -> Result<()> {
        let mut completions = std::mem::take(&mut self.completions);
        let waited = self.driver.wait(until, &mut completions);
        self.now = self.driver.clock().now();
        self.counters.batch_max = self.counters.batch_max.max(completions.len() as u64);
        for completion in completions.drain(..) {
            self.take_in(completion);
        }
        self.completions = completions;
        self.end_exhausted();
        if self.parked_until.is_some_and(|until| until <= self.now) {
            self.unpark();
        }
        waited.map_err(|why| Error::new("wait", why).by(self.driver.name()))
    }

    #[inline]
    fn take_in(&mut self, Completion { token, news }: Completion) {
        self.counters.completed += 1;
        // What happens nearly always on a driver that tells of readiness.
        if let News::Ready = news
            && let Some(waker) = self.slots.ready(token, self.now)
        {
            self.wakes.push(waker);
            return;
        }
        match self.slots.complete(token, news, self.now) {
            Effect::News { waker, let_go, descriptor, out_of_credit } => {
                self.wakes.extend(waker);
                if let_go {
                    self.let_go(descriptor);
                }
                if out_of_credit {
                    self.counters.out_of_credit += 1;
                    self.exhausted.push((token, descriptor));
                }
            }
            Effect::Orphaned(mut remains) => {
                let (index, kind, let_go) = (remains.descriptor, remains.kind, remains.let_go);
                self.wakes.extend(remains.waker.take());
                if let_go {
                    *Self::place(self.table.entry(index), kind) = NONE;
                }
                self.dispose(remains);
                if let_go {
                    self.let_go(index);
                }
            }
            Effect::Stale => self.counters.stale += 1,
        }
    }

    /// Ends the standing operations that have reached their credit. Only when all of the turn's news is taken in:
    /// some of it may be theirs, and the driver may say that they are gone.
    fn end_exhausted(&mut self) {
        while let Some((token, index)) = self.exhausted.pop() {
            if self.slots.state(token) != State::Armed {
                continue;
            }
            let kind = self.slots.kind(token);
            let on = self.table.target(index);
            if self.driver.cancel(token, kind, on) == Cancelled::Gone {
                self.slots.retract(token);
                self.let_go(index);
            }
        }
    }

    fn let_go(&mut self, index: u32) {
        let entry = self.table.entry(index);
        entry.with_driver -= 1;
        if entry.is(Mark::Closing) {
            self.close_if_over(index);
        }
    }

    // ---- shutdown and seeing inside --------------------------------------------------------------------------

    /// Closes everything, reaps until nothing is with the kernel or `patience` is over, then leaks what is left.
    /// Returns how many operations that is.
    pub(crate) fn shut_down(mut self, patience: Duration) -> u64 {
        let open: Vec<u32> = self.table.indices().collect();
        for index in open {
            if !self.table.entry(index).is(Mark::Closing) {
                self.close(index);
            }
        }
        let deadline = self.now.after(patience);
        while self.table.open() > 0 && self.now < deadline {
            let left = deadline.since(self.now);
            if self.turn(Until::For(left)).is_err() {
                break;
            }
            // Nobody is left to be woken.
            self.wakes.clear();
        }
        let leaked = self.slots.leak();
        if leaked > 0 || self.table.open() > 0 {
            self.driver.abandon();
        }
        leaked
    }

    pub(crate) fn counters(&self) -> Counters {
        let mine = &self.counters;
        let mut all = self.driver.counters();
        all.answered_at_once += mine.answered_at_once;
        all.submitted += mine.submitted;
        all.completed += mine.completed;
        all.batch_max = all.batch_max.max(mine.batch_max);
        all.out_of_credit += mine.out_of_credit;
        all.cancels += mine.cancels;
        all.retries += mine.retries;
        all.stale += mine.stale;
        all.orphaned += mine.orphaned;
        all.accept_parked += mine.accept_parked;
        all
    }

    /// Operations in slots.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.used()
    }

    /// Every operation, for a person. Asks the kernel for the names of the sockets, which counts as system calls.
    pub(crate) fn dump(&mut self, f: &mut dyn std::fmt::Write) -> std::fmt::Result {
        let (name, open, used) = (self.driver.name(), self.table.open(), self.slots.used());
        writeln!(f, "driver {name}: {open} descriptors, {used} operations")?;
        let Io { driver, table, slots, now, .. } = self;
        slots.dump(f, *now, &mut |index| {
            let on = table.target(index);
            let mut name = |call| match driver.call(call) {
                Ok(Answer::Name(name)) => Some(name),
                _ => None,
            };
            match (name(Call::LocalName { on }), name(Call::PeerName { on })) {
                (Some(local), Some(peer)) => format!("fd {} ({local} with {peer})", on.number),
                (Some(local), None) => format!("fd {} ({local})", on.number),
                _ => format!("fd {}", on.number),
            }
        })
    }
}

/// The `bytes` that a receive wrote behind what `buf` already held.
fn kept(mut buf: Buf, bytes: usize) -> Option<Box<Tail>> {
    let start = buf.bytes().len();
    // SAFETY: the driver said, with the last completion of a receive into this buffer, that so many bytes are there.
    unsafe { filled(&mut buf, bytes) };
    match buf {
        Buf::Vec(bytes) => Some(Box::new(Tail { bytes, start })),
        other => {
            Some(Box::new(Tail { bytes: other.bytes().get(start..).unwrap_or_default().to_vec(), start: 0 }))
        }
    }
}
