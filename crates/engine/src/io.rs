//! The path of an operation from its future to the driver and back.
//!
//! [`Io`] joins the driver, the slots and the table of descriptors. Futures poll it; the executor runs its
//! turns ([`Io::turn`]). It runs no user code: it puts wakers to be woken into `wakes` and wakers to be
//! dropped into `trash`, and the executor handles both when nothing is borrowed.
//!
//! Every operation is attempted first, if the driver attempts it, and then submitted. Receives and accepts
//! are in `standing`, sends in `send`, datagrams in `datagram`, files in `file`, other operations in
//! `one_shot`. Cancels and drops are in `end`, the move of a descriptor to another runtime in `leave`, and
//! direct connections in `direct`.

mod datagram;
mod direct;
mod end;
mod file;
mod leave;
mod one_shot;
mod send;
mod standing;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use direct::DIRECT;
pub(crate) use file::Filing;
pub(crate) use leave::Loose;
pub(crate) use one_shot::OneShot;
pub(crate) use send::Sending;

use crate::caller::Caller;
use crate::clock::{Moment, Until};
use crate::counters::Counters;
use crate::descriptor::{Descriptor, Entry, Mark, NONE, Table};
use crate::driver::{Cancelled, Driver};
use crate::error::{Error, Result};
use crate::inflight::{Effect, Inflight, State};
use crate::name::DriverName;
use crate::op::{Answer, Call, Completion, Kind, News, Op, Outcome, Target, Token};
use std::collections::HashMap;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Waker;
use std::time::Duration;

/// Maximum number of operations that complete immediately in one poll of a task. Then the task yields, so
/// that a peer that always has data ready does not starve other tasks.
pub(crate) const ANSWERS_PER_POLL: u32 = 64;

/// Returns the extra weight of a result of so many bytes, because a large one takes as long as several small
/// ones.
#[inline]
pub(crate) fn weight(bytes: usize) -> u32 {
    (bytes >> 14) as u32
}

/// Pause of accepting when no descriptor is free, unless one is closed earlier.
const PARKED_FOR: Duration = Duration::from_secs(1);

/// The I/O of one runtime.
pub(crate) struct Io {
    driver: Box<dyn Driver>,
    /// Whether the driver attempts sends and receives. Saves a call to one that never does.
    tries: bool,
    /// Size of the driver's receive buffers.
    buffer_bytes: usize,
    slots: Inflight,
    pub(crate) table: Table,
    completions: Vec<Completion>,
    /// Standing operations that have used up their credit in this turn, and the indices of their entries.
    exhausted: Vec<(Token, u32)>,
    /// Wakers to be woken.
    pub(crate) wakes: Vec<Waker>,
    /// Wakers to be dropped.
    pub(crate) trash: Vec<Waker>,
    /// Tasks that wait until a descriptor is closed or can move, by its index in the table.
    closers: HashMap<u32, Waker>,
    /// Datagrams of dropped receives, for the next receive, by the index of their descriptor.
    datagrams: HashMap<u32, datagram::Kept>,
    /// Listeners that found no free descriptor, by their index, in the order in which they are woken.
    parked: Vec<(u32, Waker)>,
    parked_until: Option<Moment>,
    /// Consecutive refusals, by the listener's index.
    denied: HashMap<u32, u32>,
    /// SO_LINGER was set on a socket, and accepted sockets inherit it: from then on every close checks it.
    may_linger: bool,
    /// File operations that the driver has.
    files_with_driver: usize,
    /// Open files.
    files_open: Arc<AtomicUsize>,
    /// The clock as last read.
    pub(crate) now: Moment,
    /// Immediate answers left to the task that runs.
    pub(crate) answers_left: u32,
    counters: Counters,
}

/// Hint for accepts that are refused repeatedly.
const DENIED: &str = "a security policy forbids accept(2) again and again (seccomp, SELinux, AppArmor, a BPF program) or a firewall every connection: allow it for this process";

impl Io {
    pub(crate) fn new(driver: Box<dyn Driver>) -> Io {
        let now = driver.clock().now();
        Io {
            tries: driver.tries(),
            buffer_bytes: driver.pool().buffer_bytes(),
            driver,
            slots: Inflight::new(),
            table: Table::new(),
            completions: Vec::with_capacity(crate::COMPLETIONS_PER_TURN),
            exhausted: Vec::new(),
            wakes: Vec::with_capacity(crate::COMPLETIONS_PER_TURN),
            trash: Vec::new(),
            closers: HashMap::new(),
            datagrams: HashMap::new(),
            parked: Vec::new(),
            parked_until: None,
            denied: HashMap::new(),
            may_linger: false,
            files_with_driver: 0,
            files_open: Arc::default(),
            now,
            answers_left: ANSWERS_PER_POLL,
            counters: Counters::default(),
        }
    }

    pub(crate) fn driver_name(&self) -> DriverName {
        self.driver.name()
    }

    /// Does a call that never waits.
    pub(crate) fn call(&mut self, call: Call<'_>) -> Result<Answer> {
        let name = call.name();
        let call = match call {
            Call::SetOption { on, option } => {
                self.may_linger |= option.lingers();
                Call::SetOption { on, option: option.rounded() }
            }
            other => other,
        };
        let adopted = if let Call::Adopt { on } = call { Some(on) } else { None };
        let direct = call.target().is_some_and(|on| on.is_direct());
        let answer = self.driver.call(call).map_err(|why| {
            let errno = why.raw_os_error();
            let explanation = errno.and_then(|errno| self.driver.explain(errno));
            let error = self.explained(Error::new(name, why), explanation);
            if direct && errno == Some(libc::EOPNOTSUPP) { error.hint(DIRECT) } else { error }
        })?;
        if let Some(on) = adopted {
            self.may_linger = self.may_linger || self.lingers(on);
        }
        Ok(answer)
    }

    /// Adds the driver's name and its explanation to an error.
    #[cold]
    fn explained(&self, error: Error, explanation: Option<String>) -> Error {
        let error = error.by(self.driver.name());
        match explanation {
            Some(explanation) => error.driver_limit(explanation),
            None => error,
        }
    }

    /// Adds a new descriptor to the table.
    pub(crate) fn open(&mut self, descriptor: Descriptor) -> Target {
        self.table.insert(descriptor)
    }

    /// See [`Driver::stops_short`](crate::driver::Driver::stops_short).
    pub(crate) fn stops_short(&mut self, index: u32) {
        self.driver.stops_short(self.table.target(index));
    }

    /// Returns the error of a failed operation on a descriptor.
    #[cold]
    pub(crate) fn error(&mut self, kind: Kind, index: u32, result: i32) -> Error {
        let error = self.explained(Error::errno(kind.name(), -result), self.driver.explain(-result));
        let error = match (kind, -result) {
            (Kind::Accept, libc::EPERM) => error.hint(DENIED),
            _ => error,
        };
        let on = self.table.target(index);
        if on.is_direct() {
            let error = error.on(on);
            return if result == -libc::EOPNOTSUPP { error.hint(DIRECT) } else { error };
        }
        // Best effort: the peer's address is more useful than a number.
        let peer = match kind {
            Kind::Accept => self.driver.call(Call::LocalName { on }),
            _ => self.driver.call(Call::PeerName { on }),
        };
        match peer {
            Ok(Answer::Name(name)) => error.on(name),
            _ => error.on(on),
        }
    }

    #[inline]
    fn attempt(&mut self, op: &Op<'_>) -> Option<Outcome> {
        let outcome = self.driver.attempt(op)?;
        self.answers_left = self.answers_left.saturating_sub(1);
        self.counters.answered_at_once += 1;
        Some(outcome)
    }

    /// Reads the clock.
    pub(crate) fn read_clock(&mut self) -> Moment {
        self.now = self.driver.clock().now();
        self.now
    }

    /// Requeues a task that has used up its budget. Its operation still gets a slot, so that a cancel finds
    /// it.
    #[inline]
    fn must_yield(&mut self, caller: &Caller<'_>) -> bool {
        if self.answers_left > 0 {
            return false;
        }
        self.wakes.push(caller.waker());
        true
    }

    /// Submits a queued operation to the driver.
    #[inline]
    fn submit(&mut self, token: Token, index: u32) {
        let on = self.table.target(index);
        self.driver.submit(token, &self.slots.op(token, on));
        self.slots.hand_over(token);
        self.table.entry(index).with_driver += 1;
        self.counters.submitted += 1;
    }

    /// Submits an operation that was queued before. Counts as a retry unless it only had to yield.
    fn submit_queued(&mut self, token: Token, index: u32) {
        if !self.slots.is_new(token) {
            self.counters.retries += 1;
        }
        self.submit(token, index);
    }

    /// Drops an operation that blocks this direction because its future was forgotten (`mem::forget`), and
    /// requeues the caller.
    #[cold]
    fn drop_forgotten(&mut self, token: Token, index: u32, caller: &Caller<'_>) {
        self.abandon(token, index);
        self.wakes.push(caller.waker());
    }

    #[inline]
    fn wait_for(&mut self, token: Token, caller: &Caller<'_>) {
        if let Some(before) = self.slots.set_waker(token, caller) {
            self.trash.push(before);
        }
    }

    /// Returns the entry's field for this kind of operation.
    fn place(entry: &mut Entry, kind: Kind) -> &mut u32 {
        if kind.is_inward() { &mut entry.receive } else { &mut entry.send }
    }

    /// Takes ownership of a new descriptor number.
    fn descriptor(&self, number: i32) -> Descriptor {
        match self.driver.name() {
            DriverName::Sim => Descriptor::Sim(number as u32),
            // SAFETY: a driver reports this number once, as the result of an accept. The kernel has just
            // opened it, and no other code has it.
            _ => Descriptor::Os(unsafe { OwnedFd::from_raw_fd(number) }),
        }
    }

    // ---- the turn -----------------------------------------------------------------------------------------

    /// Returns the time when listeners without descriptors retry.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        self.parked_until
    }

    /// Waits for news and handles it. Errors end the runtime.
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
        // The common case on readiness drivers.
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
                if matches!(kind, Kind::Open | Kind::File) {
                    return self.dispose_file(remains);
                }
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

    /// Ends the standing operations that have used up their credit. Runs after all news of the turn is
    /// handled: some of it may be theirs, and the driver may answer `Gone`.
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
        if index == NONE {
            self.files_with_driver -= 1;
            return;
        }
        let entry = self.table.entry(index);
        entry.with_driver -= 1;
        if entry.is(Mark::Closing) {
            self.close_if_over(index);
        } else if entry.is(Mark::Leaving) {
            self.leave_if_over(index);
        }
    }

    // ---- shutdown and dump --------------------------------------------------------------------------------

    /// Closes everything, reaps completions until the kernel has nothing or `patience` is over, then leaks
    /// what is left. Returns the number of leaked operations, and remaining wakers, to be dropped.
    pub(crate) fn shut_down(mut self, patience: Duration) -> (u64, Vec<Waker>) {
        let open: Vec<u32> = self.table.indices().collect();
        for index in open {
            if !self.table.entry(index).is(Mark::Closing) {
                self.close(index);
            }
        }
        self.abandon_files();
        // Read again: the last turn may be long ago.
        let deadline = self.read_clock().after(patience);
        while self.table.open() + self.files_with_driver + self.driver.lent() > 0 && self.now < deadline {
            let left = deadline.since(self.now);
            if self.turn(Until::For(left)).is_err() {
                break;
            }
        }
        let mut wakers = std::mem::take(&mut self.wakes);
        wakers.append(&mut self.trash);
        wakers.extend(self.parked.drain(..).map(|(_, waker)| waker));
        wakers.extend(self.closers.drain().map(|(_, waker)| waker));
        wakers.extend(self.slots.take_wakers());
        // The driver leaks what it has lent to the kernel.
        let leaked = self.slots.leak() + self.driver.lent() as u64;
        if leaked > 0 || self.table.open() > 0 {
            self.driver.abandon(deadline.since(self.now));
        }
        (leaked, wakers)
    }

    /// In a forked child: closes the child's copies of the descriptors with plain close(2), and leaves
    /// everything else untouched. Driver and slots belong to the parent: their threads and ring mappings do
    /// not exist here.
    #[cold]
    pub(crate) fn forsake(self) {
        let Io { driver, slots, table, completions, datagrams, .. } = self;
        std::mem::forget((driver, slots, completions, datagrams));
        drop(table);
    }

    pub(crate) fn counters(&self) -> Counters {
        let mine = &self.counters;
        let mut all = self.driver.counters();
        all.system_calls += mine.system_calls;
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

    /// Returns the number of operations in slots.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.used()
    }

    /// Writes a readable list of operations. Reads the sockets' names, which counts as system calls.
    pub(crate) fn dump(&mut self, f: &mut dyn std::fmt::Write) -> std::fmt::Result {
        self.read_clock();
        let (name, open, used) = (self.driver.name(), self.table.open(), self.slots.used());
        writeln!(f, "driver {name}: {open} descriptors, {used} operations")?;
        let Io { driver, table, slots, now, .. } = self;
        slots.dump(f, *now, &mut |index| {
            let on = table.target(index);
            let mut name = |call| match driver.call(call) {
                Ok(Answer::Name(name)) => Some(name),
                _ => None,
            };
            if on.is_direct() {
                return on.to_string();
            }
            match (name(Call::LocalName { on }), name(Call::PeerName { on })) {
                (Some(local), Some(peer)) => format!("fd {} ({local} with {peer})", on.number),
                (Some(local), None) => format!("fd {} ({local})", on.number),
                _ => format!("fd {}", on.number),
            }
        })
    }
}
