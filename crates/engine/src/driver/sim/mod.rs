//! A simulated kernel: sockets, buffers, faults and a clock in one thread, all decided by one seed.
//!
//! To a program it is a driver like the others. For a test its runs are reproducible: the seed of a failure
//! replays it step by step, and the [`Ledger`] lists resources that were not returned. Nothing here makes a
//! system call (except [`file`]) or reads a clock, so Miri can run it (`cargo xtask miri`).
//!
//! - [`net`] is the network: the sockets and their state.
//! - [`operation`] holds submitted operations, and checks the memory they point to.
//! - [`progress`] advances an operation, now or later.
//! - [`file`] has file operations, which run on the real file system.
//! - [`faults`] decides what goes wrong, [`ledger`] records every resource.
//! - This file is the driver: it decides what completes when, and how.
//!
//! Time passes only in [`Driver::wait`], from one event to the next. If no event is due and a task still
//! waits, that is an error: the program hangs.
//!
//! It is stricter than a kernel: it panics where a caller breaks the driver's contract (two operations in one
//! direction, a closed descriptor with operations, memory touched while it was lent).

#![expect(clippy::expect_used, reason = "it finds mistakes of its caller, and panics by design")]

mod faults;
mod file;
mod ledger;
mod net;
mod operation;
mod progress;
#[cfg(test)]
mod tests;

pub use faults::{Faults, Style};
pub use ledger::Ledger;

use super::{Cancelled, Driver, DriverName, Settings};
use crate::address::Address;
use crate::clock::{Clock, Until};
use crate::counters::Counters;
use crate::descriptor::Descriptor;
use crate::op::{Answer, Call, Completion, FileOp, Kind, News, Op, Outcome, Target, Token};
use crate::option::{Credentials, SocketOption};
use crate::pool::Pool;
use faults::Chance;
use net::{Direction, Effect, Network};
use operation::Operation;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Configuration of a simulation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SimConfig {
    /// The seed of every random decision.
    pub seed: u64,
    /// The faults to inject.
    pub faults: Faults,
    /// Style in which operations complete; `None`: the seed decides.
    pub style: Option<Style>,
    /// Maximum number of open descriptors; beyond it EMFILE.
    pub descriptors_max: usize,
    /// Steps after which a simulation counts as an endless loop, and ends with an error.
    pub steps_max: u64,
    /// The ledgers of the simulation made with this configuration: keep a clone.
    pub ledger: Ledger,
}

impl SimConfig {
    /// Returns the configuration of a simulation of `seed` with these faults.
    pub fn new(seed: u64, faults: Faults) -> SimConfig {
        SimConfig {
            seed,
            faults,
            style: None,
            descriptors_max: 20_000,
            steps_max: 50_000_000,
            ledger: Ledger::default(),
        }
    }
}

/// The simulated kernel, as a driver.
pub(crate) struct Sim {
    faults: Faults,
    style: Style,
    chance: Chance,
    ledger: Ledger,
    network: Network,
    /// By number, in the order of submission: a token may be reused while an event about its last use is
    /// pending.
    operations: BTreeMap<u64, Operation>,
    submitted: u64,
    /// File operations, likewise.
    files: BTreeMap<u64, file::Filed>,
    /// By descriptor number.
    places: Vec<Place>,
    /// Pending events, the earliest first; events of the same time in random order.
    future: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// Receives that wait for a buffer, in the order of arrival.
    starved: VecDeque<u64>,
    now: Rc<Cell<u64>>,
    pool: Rc<Pool>,
    sends_from_pool: bool,
    counters: Counters,
    /// The virtual time that the next wait takes.
    turn_ns: u64,
    steps: u64,
    steps_max: u64,
}

/// State of a descriptor number while it is open.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Index and generation of the engine's table entry that first named it.
    owner: Option<(u32, u32)>,
    /// The operation of each direction.
    users: [Option<u64>; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Shake(usize),
    Carry(usize),
    Reset(usize),
    Deliver(u64),
    /// An operation may be able to advance.
    Look(u64),
    /// An operation gets a `Ready`, possibly a spurious one.
    Nudge(u64),
    /// A cancel takes effect.
    Cancel(u64),
    /// A result is delivered to the engine.
    Arrive(u64, Parcel),
    /// An operation on a file is over.
    Filed(u64),
}

/// A result that is not delivered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Parcel {
    result: i32,
    last: bool,
    buffer: Option<u16>,
}

/// A simulation counts as one process.
const PEER: Credentials = Credentials { pid: 1, uid: 0, gid: 0 };

/// The virtual time of a wait. For a program that only spins it grows, up to [`SPIN_NS_MAX`] per turn.
const TURN_NS: u64 = 100;
const SPIN_NS_MAX: u64 = 1_000_000;

impl Sim {
    /// Returns a simulated kernel with this configuration and the buffers of `settings`.
    ///
    /// # Errors
    /// ENOMEM for the buffers.
    pub(crate) fn new(config: &SimConfig, settings: &Settings) -> io::Result<Sim> {
        let mut chance = Chance::new(config.seed);
        let styles = [Style::Readiness, Style::Completion, Style::Mixed];
        let style = styles[chance.below(3) as usize];
        let sends_from_pool = chance.below(2) == 0;
        let pool = Pool::new(settings.buffers, settings.buffer_bytes)?;
        config.ledger.begin(&pool);
        Ok(Sim {
            style: config.style.unwrap_or(style),
            network: Network::new(config.descriptors_max, config.faults.socket_buffer_bytes.max(1)),
            faults: config.faults.clone(),
            chance,
            ledger: config.ledger.clone(),
            operations: BTreeMap::new(),
            submitted: 0,
            files: BTreeMap::new(),
            places: Vec::new(),
            future: BinaryHeap::new(),
            starved: VecDeque::new(),
            now: Rc::new(Cell::new(0)),
            pool,
            sends_from_pool,
            counters: Counters::default(),
            turn_ns: TURN_NS,
            steps: 0,
            steps_max: config.steps_max,
        })
    }

    // ---- chance and time ----------------------------------------------------------------------------------

    fn note(&self, what: &'static str, on: u64, value: i64) {
        self.ledger.note(self.now.get(), what, on, value);
    }

    /// Returns the delay of the next event.
    fn delay(&mut self) -> u64 {
        let stall = if self.chance.hits(self.faults.stall) { 3_000_000_000 } else { 0 };
        self.chance.below(self.faults.delay_ns_max.max(1)) + self.chance.below(stall)
    }

    fn later(&mut self, event: Event) {
        let at = self.now.get() + 1 + self.delay();
        self.at(at, event);
    }

    fn at(&mut self, at: u64, event: Event) {
        let tie = self.chance.next();
        self.future.push(Reverse((at, tie, event)));
    }

    /// Returns `most`, or less if the fault of short transfers occurs.
    fn shortened(&mut self, most: usize) -> usize {
        if most > 1 && self.chance.hits(self.faults.short) {
            1 + self.chance.below(most as u64 - 1) as usize
        } else {
            most
        }
    }

    /// Schedules the effects that calls on the network have caused.
    fn schedule_effects(&mut self) {
        while let Some(effect) = self.network.effects.pop_front() {
            match effect {
                Effect::Shake(id) => self.later(Event::Shake(id)),
                Effect::Carry(id) => self.later(Event::Carry(id)),
                Effect::Reset(id) => self.later(Event::Reset(id)),
                Effect::Deliver(which) => self.later(Event::Deliver(which)),
                Effect::Changed(number, direction) => {
                    if let Some(id) = self.user(number, direction) {
                        self.look_soon(id, true);
                    }
                }
            }
        }
    }

    /// Schedules a look at an operation. `changed`: something has happened that was not reported to it.
    fn look_soon(&mut self, id: u64, changed: bool) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        operation.told &= !changed;
        if !operation.due && !operation.over {
            operation.due = true;
            self.later(Event::Look(id));
        }
    }

    // ---- descriptors --------------------------------------------------------------------------------------

    fn place(&mut self, number: u32) -> &mut Place {
        let at = number as usize;
        if at >= self.places.len() {
            self.places.resize(at + 1, Place::default());
        }
        &mut self.places[at]
    }

    fn user(&mut self, number: u32, direction: Direction) -> Option<u64> {
        self.place(number).users[direction as usize]
    }

    /// Returns the descriptor number of a target; panics if the number has been reused since.
    fn number(&mut self, on: Target) -> u32 {
        let number = u32::try_from(on.number).expect("the engine's table gives numbers of open descriptors");
        let owner = (on.index, on.generation);
        let known = *self.place(number).owner.get_or_insert(owner);
        assert!(known == owner, "descriptor {number} is entry {known:?} and is named by {owner:?}");
        number
    }

    fn opened(&mut self, number: u32, how: &'static str) {
        self.ledger.opened_by(number, how);
        self.note(how, u64::from(number), 0);
    }

    fn perform(&mut self, call: Call<'_>) -> Result<Answer, i32> {
        let done = |()| Answer::Done;
        match call {
            Call::Socket { domain, carries } => {
                let number = self.network.open(domain, carries)?;
                self.opened(number, "socket");
                Ok(Answer::Descriptor(Descriptor::Sim(number)))
            }
            Call::Pair { carries } => {
                let (one, other) = self.network.pair(carries)?;
                self.opened(one, "socketpair");
                self.opened(other, "socketpair");
                Ok(Answer::Pair(Descriptor::Sim(one), Descriptor::Sim(other)))
            }
            Call::Adopt { on } => {
                self.number(on);
                Ok(Answer::Done)
            }
            Call::Bind { on, address } => {
                let number = self.number(on);
                let address = Address::of_kernel(address).ok_or(libc::EAFNOSUPPORT)?;
                self.network.bind(number, &address).map(done)
            }
            Call::Join { on, address } => {
                let number = self.number(on);
                let address = Address::of_kernel(address).ok_or(libc::EAFNOSUPPORT)?;
                self.network.join(number, &address).map(done)
            }
            Call::SendTo { on, bytes, address } => {
                let number = self.number(on);
                let address = Address::of_kernel(address).ok_or(libc::EAFNOSUPPORT)?;
                match self.send_message(number, Some(&address), bytes) {
                    errno if errno < 0 => Err(-errno),
                    _ => Ok(Answer::Done),
                }
            }
            Call::Peek { on } => {
                let number = self.number(on);
                let is_ready = self.network.is_ready(number, Direction::In);
                if is_ready { Ok(Answer::Done) } else { Err(libc::EAGAIN) }
            }
            Call::RemoveSocketFile { path } => self.network.remove_file(path).map(done),
            Call::Group { on, membership } => {
                let number = self.number(on);
                self.network.change_groups(number, membership).map(done)
            }
            Call::PeerCredentials { on } => {
                let number = self.number(on);
                self.network.peer_name(number).map(|_| Answer::Credentials(PEER))
            }
            Call::Listen { on, backlog } => {
                let number = self.number(on);
                self.network.listen(number, backlog).map(done)
            }
            Call::SetOption { on, option } => {
                let number = self.number(on);
                self.network.set_option(number, option).map(done)
            }
            Call::Reset { on } => {
                let number = self.number(on);
                self.network.set_option(number, SocketOption::Linger(Some(Duration::ZERO))).map(done)
            }
            Call::GetOption { on, option } => {
                let number = self.number(on);
                self.network.option(number, option).map(Answer::Option)
            }
            Call::LocalName { on } => {
                let number = self.number(on);
                self.network.local_name(number).map(Answer::Name)
            }
            Call::PeerName { on } => {
                let number = self.number(on);
                self.network.peer_name(number).map(Answer::Name)
            }
            Call::Shutdown { on, how } => {
                let number = self.number(on);
                self.note("shutdown", u64::from(number), how as i64);
                self.network.shutdown(number, how).map(done)
            }
            Call::Close { on, descriptor } => {
                let number = self.number(on);
                assert!(
                    matches!(descriptor, Descriptor::Sim(closed) if closed == number),
                    "descriptor {number} is closed as {descriptor:?}"
                );
                self.close(number).map(done)
            }
        }
    }

    fn close(&mut self, number: u32) -> Result<(), i32> {
        let users = self.place(number).users;
        assert!(users == [None; 2], "descriptor {number} is closed with operations in flight: {users:?}");
        *self.place(number) = Place::default();
        self.ledger.closed(number);
        self.note("close", u64::from(number), 0);
        self.network.close(number)
    }

    // ---- operations with the driver -----------------------------------------------------------------------

    /// Handles an event of an operation: reports `Ready`, or advances it.
    fn look(&mut self, id: u64, out: &mut Vec<Completion>) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        operation.due = false;
        if operation.over {
            return;
        }
        let (number, direction, told) = (operation.number(), operation.direction(), operation.told);
        if operation.completes {
            self.advance(id);
        } else if !told && self.network.is_ready(number, direction) {
            self.tell(id, out);
        }
    }

    /// Reports `Ready`, which ends a one-shot operation.
    fn tell(&mut self, id: u64, out: &mut Vec<Completion>) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        operation.told = true;
        let (token, standing) = (operation.token, operation.kind.is_standing());
        self.note("ready", token.to_bits(), 0);
        if !standing {
            self.let_go(id);
        }
        out.push(Completion { token, news: News::Ready });
    }

    /// Ends an operation: its memory and its direction are free.
    fn let_go(&mut self, id: u64) {
        let operation = self.operations.remove(&id).expect("let go of once, where it was just found");
        let direction = operation.direction() as usize;
        self.place(operation.number()).users[direction] = None;
        self.ledger.let_go(operation.token);
        operation.let_go();
    }

    /// Schedules the delivery of a result; results of one operation stay in order.
    fn send_result(&mut self, id: u64, result: i32, last: bool, buffer: Option<u16>) {
        let mut at = self.now.get() + 1 + self.delay();
        let Some(operation) = self.operations.get_mut(&id) else { return };
        at = at.max(operation.arrives + 1);
        operation.arrives = at;
        operation.underway += 1;
        operation.over = last;
        self.at(at, Event::Arrive(id, Parcel { result, last, buffer }));
    }

    /// Carries out a cancel, if the operation has not ended.
    fn end(&mut self, id: u64) {
        let Some(operation) = self.operations.get(&id) else { return };
        let done = operation.done;
        if !operation.over {
            // An operation that had an effect is never reported as cancelled.
            self.send_result(id, if done > 0 { done as i32 } else { -libc::ECANCELED }, true, None);
        }
    }

    /// Delivers a result to the engine.
    fn arrive(&mut self, id: u64, parcel: Parcel, out: &mut Vec<Completion>) {
        let operation =
            self.operations.get_mut(&id).expect("an operation stays until its last result is told");
        operation.underway -= 1;
        operation.told_in = self.counters.waits;
        let token = operation.token;
        let Parcel { result, last, buffer } = parcel;
        self.note(if last { "last" } else { "item" }, token.to_bits(), i64::from(result));
        // SAFETY: taken from the pool when it was filled, and referenced by this parcel only.
        let lease = buffer.map(|buffer| unsafe { self.pool.lease(buffer, result as usize) });
        let outcome = Outcome { result, lease };
        if last {
            self.let_go(id);
        }
        out.push(Completion { token, news: if last { News::Last(outcome) } else { News::Item(outcome) } });
    }

    fn happen(&mut self, event: Event, out: &mut Vec<Completion>) {
        match event {
            Event::Shake(id) => {
                let chance = &mut self.chance;
                self.network.shake(id, |listeners| chance.below(listeners as u64) as usize);
            }
            Event::Carry(id) => {
                let most = self.shortened(64 * 1024);
                self.network.carry(id, most);
            }
            Event::Reset(id) => self.network.reset(id),
            Event::Deliver(which) => self.network.deliver_late(which),
            Event::Look(id) => self.look(id, out),
            Event::Nudge(id) => self.tell(id, out),
            Event::Cancel(id) => self.end(id),
            Event::Arrive(id, parcel) => self.arrive(id, parcel, out),
            Event::Filed(id) => self.filed(id, out),
        }
        self.schedule_effects();
    }

    /// Resumes as many receives as there are buffers, the longest waiting first; more would only wait again.
    fn submit_starved(&mut self) {
        let mut buffers = if self.starved.is_empty() { 0 } else { self.pool.free() };
        while buffers > 0
            && let Some(id) = self.starved.pop_front()
        {
            // An operation that has ended, or has nothing left to receive, waits for no buffer.
            let waits = self.operations.get(&id).filter(|operation| !operation.over);
            if let Some(number) = waits.map(Operation::number)
                && self.network.is_ready(number, Direction::In)
            {
                self.look_soon(id, true);
                buffers -= 1;
            }
        }
    }

    fn step(&mut self) -> io::Result<()> {
        self.steps += 1;
        if self.steps > self.steps_max {
            return Err(io::Error::other(format!(
                "{} steps and no end: the program runs in circles",
                self.steps_max
            )));
        }
        Ok(())
    }

    /// Abandons what is in flight: no completion is reported for it any more.
    fn give_up(&mut self) {
        for Reverse((_, _, event)) in std::mem::take(&mut self.future).into_vec() {
            let Event::Arrive(id, Parcel { result, buffer, .. }) = event else { continue };
            if let Some(buffer) = buffer {
                self.pool.put(buffer);
            }
            let accepts = self.operations.get(&id).is_some_and(|operation| operation.kind == Kind::Accept);
            if accepts && result >= 0 {
                let _ = self.close(result as u32);
            }
        }
        self.network.effects.clear();
        self.give_up_files();
        self.counters.leaked += self.operations.len() as u64;
        self.operations.clear();
        self.places.clear();
        self.starved.clear();
        self.ledger.abandon();
    }
}

impl Driver for Sim {
    fn name(&self) -> DriverName {
        DriverName::Sim
    }

    fn call(&mut self, call: Call<'_>) -> io::Result<Answer> {
        let answer = self.perform(call);
        self.schedule_effects();
        answer.map_err(io::Error::from_raw_os_error)
    }

    fn withholds(&mut self, token: Token, _: Target) -> bool {
        self.operations.values().any(|operation| operation.token == token && operation.underway > 0)
    }

    fn tries(&self) -> bool {
        true
    }

    fn attempt(&mut self, op: &Op<'_>) -> Option<Outcome> {
        let kind = op.kind();
        if let Op::File(_) = op {
            return None;
        }
        let number = self.number(op.target());
        let user = self.user(number, operation::direction(kind));
        let tries = match user.and_then(|id| self.operations.get(&id)) {
            Some(operation) => {
                let same = operation.kind == kind && kind.is_standing();
                assert!(same, "{kind} is attempted on descriptor {number}, which does {}", operation.kind);
                !operation.completes
            }
            // As on io_uring: a receive in bulk is attempted, and waits for readiness.
            None if matches!(op, Op::ReceiveBulk { .. }) => true,
            None => match self.style {
                Style::Readiness => true,
                Style::Completion => false,
                Style::Mixed => self.chance.below(2) == 0,
            },
        };
        if !tries {
            return None;
        }
        let refused = self.chance.hits(self.faults.would_block);
        let outcome = if refused { Outcome::of(-libc::EAGAIN) } else { self.try_now(op) };
        self.note("attempt", u64::from(number), i64::from(outcome.result));
        let over = !matches!(-outcome.result, libc::EAGAIN | libc::EINPROGRESS | libc::EALREADY);
        if let Some(id) = user {
            // Edge-triggered: an operation that found nothing gets a report of the next event, and of one
            // that was withheld.
            let drained = !self.network.is_ready(number, operation::direction(kind));
            self.look_soon(id, !over || drained);
        }
        self.schedule_effects();
        if over {
            return Some(outcome);
        }
        self.counters.would_block += 1;
        None
    }

    fn takes(&self, _: &FileOp) -> bool {
        true
    }

    fn submit(&mut self, token: Token, op: &Op<'_>) {
        let kind = op.kind();
        if let Op::File(op) = op {
            return self.file(token, kind, *op);
        }
        let number = self.number(op.target());
        self.submitted += 1;
        let id = self.submitted;
        let user = &mut self.place(number).users[operation::direction(kind) as usize];
        let before = user.replace(id);
        assert!(
            before.is_none(),
            "{kind} is submitted on descriptor {number}, which has {before:?} in flight"
        );
        let completes = match self.style {
            _ if matches!(op, Op::ReceiveBulk { .. }) => false,
            Style::Readiness => false,
            Style::Completion => true,
            Style::Mixed => self.chance.below(2) == 0,
        };
        self.ledger.taken_on(token, kind, number);
        self.note(kind.name(), token.to_bits(), i64::from(number));
        self.operations.insert(id, Operation::new(token, op, completes));
        self.look_soon(id, true);
        if !completes && self.chance.hits(self.faults.spurious) {
            self.later(Event::Nudge(id));
        }
    }

    fn cancel(&mut self, token: Token, kind: Kind, on: Target) -> Cancelled {
        if matches!(kind, Kind::Open | Kind::File) {
            // It has had its effect, and its completion is pending.
            self.note("cancel", token.to_bits(), 0);
            return Cancelled::Asked;
        }
        let user = self.user(on.number as u32, operation::direction(kind));
        let Some((id, operation)) = user.and_then(|id| Some((id, self.operations.get(&id)?))) else {
            // Its last result was delivered, or it is unknown.
            return Cancelled::Asked;
        };
        if operation.token != token {
            return Cancelled::Asked;
        }
        assert!(operation.kind == kind && operation.on == on, "{token:?} is no {kind} on {on:?}");
        // If it has begun, has pending results, or had a result in the last wait that the engine may not have
        // read yet, then it has had an effect. Answering "gone" would make the engine ignore those results.
        let untouched = operation.done == 0
            && operation.underway == 0
            && operation.told_in != self.counters.waits
            && kind != Kind::Connect;
        let gone = !operation.completes || (untouched && !operation.cancelling && self.chance.below(3) == 0);
        self.note("cancel", token.to_bits(), i64::from(gone));
        if gone {
            self.let_go(id);
            return Cancelled::Gone;
        }
        if let Some(operation) = self.operations.get_mut(&id)
            && !operation.cancelling
        {
            operation.cancelling = true;
            if !self.chance.hits(self.faults.stuck) {
                let late = if self.chance.hits(self.faults.lost_race) { 1_000_000_000 } else { 0 };
                let at = self.now.get() + 1 + self.delay() + self.chance.below(late);
                self.at(at, Event::Cancel(id));
            }
        }
        Cancelled::Asked
    }

    fn release(&mut self, on: Target) -> Option<i32> {
        let number = self.number(on);
        let users = self.place(number).users;
        assert!(users == [None; 2], "descriptor {number} leaves with operations in flight: {users:?}");
        *self.place(number) = Place::default();
        self.note("release", u64::from(number), 0);
        None
    }

    fn wait(&mut self, until: Until, out: &mut Vec<Completion>) -> io::Result<()> {
        self.step()?;
        self.counters.waits += 1;
        self.submit_starved();
        let began = self.now.get() + self.turn_ns;
        let deadline = match until {
            Until::Now => Some(began),
            Until::For(span) => {
                Some(began.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
            }
            Until::News => None,
        };
        if until != Until::Now && self.chance.hits(self.faults.interrupted) {
            self.now.set(began);
            self.note("interrupted", 0, 0);
            return Ok(());
        }
        let before = out.len();
        // Events that arrive until then are reported together.
        let mut horizon = began;
        let most = match self.faults.batch_max {
            0 => crate::COMPLETIONS_PER_TURN,
            most => most.min(crate::COMPLETIONS_PER_TURN),
        };
        while out.len() - before < most {
            let next = self.future.peek().map(|Reverse((at, _, _))| *at);
            let news = out.len() > before;
            match next {
                Some(at) if at > horizon && news => break,
                Some(at) if deadline.is_none_or(|deadline| at <= deadline) => {
                    self.step()?;
                    self.now.set(self.now.get().max(at));
                    if let Some(Reverse((_, _, event))) = self.future.pop() {
                        self.happen(event, out);
                    }
                    if !news && out.len() > before {
                        horizon = horizon.max(at + self.chance.below(self.faults.delay_ns_max));
                    }
                }
                _ if news => break,
                _ => match deadline {
                    Some(deadline) => {
                        self.now.set(self.now.get().max(deadline));
                        break;
                    }
                    None => return Err(io::Error::other("every task waits, and nothing will happen")),
                },
            }
        }
        self.now.set(self.now.get().max(began));
        let spins = until == Until::Now && out.len() == before;
        self.turn_ns = if spins { (self.turn_ns * 2).min(SPIN_NS_MAX) } else { TURN_NS };
        Ok(())
    }

    fn alarm(&self) -> Option<Arc<OwnedFd>> {
        None
    }

    fn pool(&self) -> &Rc<Pool> {
        &self.pool
    }

    fn sends_from_pool(&self) -> bool {
        self.sends_from_pool
    }

    fn clock(&self) -> Clock {
        Clock::Virtual(Rc::clone(&self.now))
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn abandon(mut self: Box<Self>, _: Duration) {
        self.give_up();
    }
}
