//! Slots: one for each operation between a future and the kernel, owning what the kernel may touch.
//!
//! This file is pure: no system call, no clock of its own, no driver. It knows in which state an operation is,
//! keeps its memory until nobody else can reach it, and says what follows from an event. The table of states is
//! in docs/ARCHITECTURE.md; a test below walks every order of events.
//!
//! INVARIANT: memory leaves a slot only when the driver has let go of it. From [`Inflight::hand_over`] until a
//! `Last` (for a one-shot operation also a `Ready`, or [`Inflight::retract`] after the driver said `Gone`) a
//! slot's memory is neither freed, moved nor given out, whatever happens to the future.
//!
//! Slots live in chunks that never move, and are 64 bytes, so that an idle connection costs one cache line here.

mod memory;
mod message;
mod request;
mod vectors;

pub(crate) use memory::{Memory, op_of};
pub(crate) use message::Message;
pub(crate) use request::{At, Base, Open, Request};
pub(crate) use vectors::Vectors;

use crate::caller::Caller;
use crate::clock::Moment;
use crate::op::{Kind, News, Op, Outcome, Target, Token};
use std::fmt;
use std::task::Waker;

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// Nobody's.
    Free,
    /// Made, or let go of by the driver without effect: to be attempted.
    Queued,
    /// One-shot, with the driver.
    Submitted,
    /// Standing, with the driver.
    Armed,
    /// The driver has let go of it; the result waits for the future.
    Done,
    /// With the driver, and the future is gone.
    Orphaned,
}

/// A list of results in [`Inflight::items`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Items {
    first: u32,
    last: u32,
    count: u32,
    /// Received bytes in them.
    bytes: u32,
}

impl Items {
    pub(crate) const EMPTY: Items = Items { first: NONE, last: NONE, count: 0, bytes: 0 };
}

const NONE: u32 = u32::MAX;

/// Buffers a stream may hold that nobody has read; then its receive is ended until it is. Without a limit one
/// greedy peer takes every buffer of the ring (measured: 255 of 256).
pub(crate) const CREDIT: u32 = 4;

/// Bytes it may hold likewise. A stream that has reached them brings much at a time: from then on each of its receives
/// is asked for by itself, and brings one buffer. Left standing it would take what the buffers hold ten times over before
/// it is ended again, and the others would go without.
pub(crate) const CREDIT_BYTES: u32 = 64 * 1024;

/// Connections a listener may hold that nobody has accepted; beyond, they wait in the kernel's backlog.
pub(crate) const ACCEPT_CREDIT: u32 = 64;

/// A standing series ended for a reason that is not the stream's: it is to be armed again.
const AGAIN: i32 = -libc::EAGAIN;

/// Its end, when it comes as a cancel, is ours: it is to be armed again.
const OUT_OF_CREDIT: u8 = 1;
/// Whoever waits for it wants it ended.
const CANCEL_ASKED: u8 = 2;
/// A future waits for it, also when that was woken and has not been polled yet.
const AWAITED: u8 = 4;
/// A send that is content with a part.
const PARTLY: u8 = 8;
/// A receive of a stream that has brought [`CREDIT_BYTES`] at once.
const ONE_AT_A_TIME: u8 = 16;

/// The last thing that happened to a slot, for the dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Event {
    Made,
    HandedOver,
    Ready,
    Item,
    Last,
    Cancelled,
    Dropped,
}

/// One operation between its future and the kernel.
#[derive(Debug)]
pub(crate) struct Slot {
    generation: u32,
    state: State,
    kind: Kind,
    flags: u8,
    event: Event,
    result: i32,
    /// Index in the descriptor table. On a free slot: the next free one.
    descriptor: u32,
    waker: Option<Waker>,
    memory: Memory,
    /// Bytes transferred by earlier attempts.
    done: u32,
    /// Milliseconds of the runtime's clock at the last event.
    since: u32,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// What follows from a completion.
#[derive(Debug)]
pub(crate) enum Effect {
    /// For the life of a slot that is over: must not happen.
    Stale,
    /// The future has news.
    News { waker: Option<Waker>, let_go: bool, descriptor: u32, out_of_credit: bool },
    /// The future is gone: this is to be disposed of.
    Orphaned(Remains),
}

/// What is left of an operation whose future is gone.
#[derive(Debug)]
pub(crate) struct Remains {
    pub(crate) kind: Kind,
    pub(crate) descriptor: u32,
    pub(crate) outcome: Outcome,
    /// With the last of it: the memory, how much was transferred before, and who waits for this to be over.
    pub(crate) memory: Memory,
    pub(crate) done: u32,
    pub(crate) waker: Option<Waker>,
    /// The driver has let go, and the slot is free.
    pub(crate) let_go: bool,
}

/// What a standing operation has for its future.
#[derive(Debug)]
pub(crate) enum Next {
    /// A result.
    Item(Outcome),
    /// Nothing yet.
    Empty,
    /// It is to be submitted again.
    Again,
    /// It is over, with 0 or a negated errno; the slot is free.
    Over(i32),
}

/// All slots of a runtime.
#[derive(Debug)]
pub(crate) struct Inflight {
    chunks: Vec<Box<[Slot]>>,
    free: u32,
    used: usize,
    /// Results of standing operations that nobody has taken, in lists.
    items: Vec<Node>,
    free_item: u32,
}

#[derive(Debug)]
struct Node {
    outcome: Outcome,
    next: u32,
}

/// Slots made at a time: 16 KiB.
const CHUNK: usize = 256;

impl Inflight {
    pub(crate) fn new() -> Inflight {
        Inflight { chunks: Vec::new(), free: NONE, used: 0, items: Vec::new(), free_item: NONE }
    }

    /// Slots that are not free.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    #[inline]
    fn slot(&mut self, index: u32) -> &mut Slot {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    /// The slot of a token that is known to be alive: its future, or the table, holds it.
    #[inline]
    fn live(&mut self, token: Token) -> &mut Slot {
        let slot = self.slot(token.index);
        assert!(slot.generation == token.generation, "a token of an earlier life");
        slot
    }

    /// Takes an operation in: Free to Queued.
    pub(crate) fn insert(
        &mut self,
        kind: Kind,
        descriptor: u32,
        memory: Memory,
        done: u32,
        now: Moment,
    ) -> Token {
        if self.free == NONE {
            let first = (self.chunks.len() * CHUNK) as u32;
            self.chunks.push((0..CHUNK as u32).map(|at| Slot::free(first, at)).collect());
            self.free = first;
        }
        let index = self.free;
        let slot = self.slot(index);
        let next = slot.descriptor;
        slot.generation = slot.generation.wrapping_add(1);
        slot.state = State::Queued;
        slot.kind = kind;
        slot.flags = 0;
        slot.event = Event::Made;
        slot.since = millis(now);
        slot.result = 0;
        slot.descriptor = descriptor;
        slot.memory = memory;
        slot.done = done;
        let token = Token { index, generation: slot.generation };
        self.free = next;
        self.used += 1;
        token
    }

    /// The token of the life that slot `index` is in.
    #[inline]
    pub(crate) fn token(&mut self, index: u32) -> Token {
        Token { index, generation: self.slot(index).generation }
    }

    #[inline]
    pub(crate) fn state(&mut self, token: Token) -> State {
        self.live(token).state
    }

    #[inline]
    pub(crate) fn kind(&mut self, token: Token) -> Kind {
        self.live(token).kind
    }

    /// The operation as the driver is told of it. What it points to stays in place until the driver lets go.
    #[inline]
    pub(crate) fn op(&mut self, token: Token, on: Target) -> Op<'_> {
        let slot = self.live(token);
        if slot.flags & ONE_AT_A_TIME != 0 {
            return Op::ReceiveOne { on };
        }
        let done = slot.done as usize;
        let whole = slot.flags & PARTLY == 0;
        op_of(slot.kind, &mut slot.memory, done, on, whole)
    }

    /// A send that is content with a part of it.
    pub(crate) fn content_with_a_part(&mut self, token: Token) {
        self.live(token).flags |= PARTLY;
    }

    /// The driver has it: Queued to Submitted or Armed.
    #[inline]
    pub(crate) fn hand_over(&mut self, token: Token) {
        let slot = self.live(token);
        debug_assert_eq!(slot.state, State::Queued);
        slot.state = if slot.kind.is_standing() { State::Armed } else { State::Submitted };
        slot.event = Event::HandedOver;
    }

    /// Who is to be woken by news. Gives out the one who was before, if that is another.
    #[inline]
    pub(crate) fn set_waker(&mut self, token: Token, caller: &Caller<'_>) -> Option<Waker> {
        self.live(token).wait(caller)
    }

    /// The standing operation in slot `index`, if it is with the driver and has brought nothing, and is a `kind`.
    #[inline]
    pub(crate) fn empty_handed(&mut self, index: u32, kind: Kind) -> Option<&mut Slot> {
        let slot = self.slot(index);
        let is = slot.state == State::Armed
            && slot.kind == kind
            && matches!(slot.memory, Memory::Items(Items { count: 0, .. }));
        is.then_some(slot)
    }

    /// Nobody waits any more.
    #[inline]
    pub(crate) fn clear_waker(&mut self, token: Token) -> Option<Waker> {
        let slot = self.live(token);
        slot.serve();
        slot.waker.take()
    }

    /// Who is to be woken now; it goes on waiting until it is polled.
    pub(crate) fn take_waker(&mut self, token: Token) -> Option<Waker> {
        self.live(token).waker.take()
    }

    /// The future that waited for the standing operation in slot `index` got something, past the list.
    #[inline]
    pub(crate) fn served(&mut self, index: u32) {
        self.slot(index).serve();
    }

    /// Whether somebody waits.
    pub(crate) fn is_waited_for(&mut self, token: Token) -> bool {
        self.live(token).flags & AWAITED != 0
    }

    /// A future waits for it that is going to be polled in any case.
    pub(crate) fn awaits(&mut self, token: Token) {
        self.live(token).flags |= AWAITED;
    }

    /// Whether it has never been handed over.
    pub(crate) fn is_new(&mut self, token: Token) -> bool {
        self.live(token).event == Event::Made
    }

    /// Whether who waits for it wants it ended.
    pub(crate) fn is_cancel_asked(&mut self, token: Token) -> bool {
        self.live(token).flags & CANCEL_ASKED != 0
    }

    /// The same as [`Inflight::complete`] for a standing operation that is told to be ready and that somebody waits
    /// for: who is to be woken. `None`, with nothing changed, if it is another case.
    #[inline]
    pub(crate) fn ready(&mut self, token: Token, now: Moment) -> Option<Waker> {
        let slot =
            self.chunks.get_mut(token.index as usize / CHUNK)?.get_mut(token.index as usize % CHUNK)?;
        let is = slot.generation == token.generation && slot.state == State::Armed && slot.waker.is_some();
        if is { slot.told_ready(now) } else { None }
    }

    /// Takes a completion in.
    #[inline]
    pub(crate) fn complete(&mut self, token: Token, news: News, now: Moment) -> Effect {
        if token.index as usize >= self.chunks.len() * CHUNK {
            return Effect::Stale;
        }
        let slot = self.slot(token.index);
        if slot.generation != token.generation {
            return Effect::Stale;
        }
        slot.since = millis(now);
        let descriptor = slot.descriptor;
        match (slot.state, news) {
            (State::Armed, News::Item(outcome)) => {
                slot.event = Event::Item;
                let waker = slot.waker.take();
                let out_of_credit = self.push(token.index, outcome);
                Effect::News { waker, let_go: false, descriptor, out_of_credit }
            }
            (State::Armed, News::Ready) => {
                let waker = slot.told_ready(now);
                Effect::News { waker, let_go: false, descriptor, out_of_credit: false }
            }
            (State::Submitted, News::Ready) => {
                slot.event = Event::Ready;
                // A cancel that was on its way then has met nothing that was done: it is over.
                if slot.flags & CANCEL_ASKED != 0 {
                    slot.state = State::Done;
                    slot.result = -libc::ECANCELED;
                } else {
                    slot.state = State::Queued;
                }
                Effect::News { waker: slot.waker.take(), let_go: true, descriptor, out_of_credit: false }
            }
            (State::Submitted, News::Last(outcome)) => {
                slot.event = Event::Last;
                slot.state = State::Done;
                slot.result = outcome.result;
                Effect::News { waker: slot.waker.take(), let_go: true, descriptor, out_of_credit: false }
            }
            (State::Armed, News::Last(outcome)) => {
                slot.event = Event::Last;
                slot.state = State::Done;
                let waker = slot.waker.take();
                // The end of the series may carry an item of it.
                let carries = match slot.kind {
                    Kind::Accept => outcome.result >= 0,
                    _ => outcome.lease.is_some(),
                };
                slot.result = if carries { AGAIN } else { outcome.result };
                if carries {
                    self.push(token.index, outcome);
                }
                Effect::News { waker, let_go: true, descriptor, out_of_credit: false }
            }
            (State::Orphaned, News::Item(outcome)) => {
                slot.event = Event::Item;
                let (kind, done) = (slot.kind, slot.done);
                let memory = Memory::None;
                Effect::Orphaned(Remains {
                    kind,
                    descriptor,
                    outcome,
                    memory,
                    done,
                    waker: None,
                    let_go: false,
                })
            }
            (State::Orphaned, News::Ready) if slot.kind.is_standing() => {
                Effect::News { waker: None, let_go: false, descriptor, out_of_credit: false }
            }
            (State::Orphaned, news) => {
                let outcome = match news {
                    News::Last(outcome) | News::Item(outcome) => outcome,
                    News::Ready => Outcome::of(-libc::ECANCELED),
                };
                let (kind, done, waker) = (slot.kind, slot.done, slot.waker.take());
                let memory = self.release(token);
                Effect::Orphaned(Remains { kind, descriptor, outcome, memory, done, waker, let_go: true })
            }
            // A driver that speaks of what it has let go of.
            (State::Queued | State::Done | State::Free, _) | (State::Submitted, News::Item(_)) => {
                Effect::Stale
            }
        }
    }

    /// Adds a result to a standing operation's list. `true`: it has reached its credit, and is to be ended.
    fn push(&mut self, index: u32, outcome: Outcome) -> bool {
        let bytes = outcome.lease.as_ref().map_or(0, |lease| lease.len() as u32);
        let node = Node { outcome, next: NONE };
        let at = if self.free_item == NONE {
            self.items.push(node);
            (self.items.len() - 1) as u32
        } else {
            let at = self.free_item;
            self.free_item = std::mem::replace(&mut self.items[at as usize], node).next;
            at
        };
        let slot = self.slot(index);
        let credit = if slot.kind == Kind::Accept { ACCEPT_CREDIT } else { CREDIT };
        let Memory::Items(mut items) = slot.memory else { unreachable!("a standing operation has a list") };
        let last = std::mem::replace(&mut items.last, at);
        items.count += 1;
        items.bytes = items.bytes.saturating_add(bytes);
        if last == NONE {
            items.first = at;
        }
        slot.memory = Memory::Items(items);
        let much = items.bytes >= CREDIT_BYTES;
        if much {
            slot.flags |= ONE_AT_A_TIME;
        }
        let reached = (much || items.count >= credit) && slot.flags & OUT_OF_CREDIT == 0;
        if reached {
            slot.flags |= OUT_OF_CREDIT;
        }
        if last != NONE {
            self.items[last as usize].next = at;
        }
        reached
    }

    /// The oldest result of a standing operation, out of its list.
    #[inline]
    fn pop(&mut self, index: u32) -> Option<Outcome> {
        let slot = self.slot(index);
        let Memory::Items(mut items) = slot.memory else { return None };
        if items.first == NONE {
            return None;
        }
        let at = items.first;
        let free = std::mem::replace(&mut self.free_item, at);
        let node = &mut self.items[at as usize];
        items.first = std::mem::replace(&mut node.next, free);
        let outcome = std::mem::replace(&mut node.outcome, Outcome::of(0));
        items.count -= 1;
        let bytes = outcome.lease.as_ref().map_or(0, |lease| lease.len() as u32);
        items.bytes = items.bytes.saturating_sub(bytes);
        if items.first == NONE {
            items.last = NONE;
        }
        self.slot(index).memory = Memory::Items(items);
        Some(outcome)
    }

    /// What a standing operation has for its future.
    #[inline]
    pub(crate) fn next(&mut self, token: Token) -> Next {
        let slot = self.live(token);
        debug_assert!(slot.kind.is_standing());
        if let Memory::Items(items) = &slot.memory
            && items.count > 0
            && let Some(outcome) = self.pop(token.index)
        {
            self.slot(token.index).serve();
            return Next::Item(outcome);
        }
        let slot = self.live(token);
        match slot.state {
            State::Done => {
                let asked = slot.flags & CANCEL_ASKED != 0;
                let out_of_credit = slot.flags & OUT_OF_CREDIT != 0 && !asked;
                match -slot.result {
                    // It ended by itself just before: the cancel must not be lost over that.
                    libc::EAGAIN | libc::EINTR | libc::ENOBUFS if asked => {
                        self.release(token);
                        Next::Over(-libc::ECANCELED)
                    }
                    libc::EAGAIN | libc::EINTR | libc::ENOBUFS if slot.kind == Kind::Receive => {
                        self.again(token)
                    }
                    libc::EAGAIN | libc::EINTR => self.again(token),
                    libc::ECANCELED if out_of_credit => self.again(token),
                    _ => {
                        let result = slot.result;
                        self.release(token);
                        Next::Over(result)
                    }
                }
            }
            State::Queued => Next::Again,
            _ => Next::Empty,
        }
    }

    fn again(&mut self, token: Token) -> Next {
        let slot = self.live(token);
        slot.state = State::Queued;
        slot.flags &= ONE_AT_A_TIME;
        Next::Again
    }

    /// Whether a receive that is asked for one at a time is to be asked for again, its last lease having been taken just
    /// now: then it is Queued.
    #[inline]
    pub(crate) fn asks_ahead(&mut self, token: Token) -> bool {
        let slot = self.live(token);
        let is = slot.flags & (ONE_AT_A_TIME | CANCEL_ASKED) == ONE_AT_A_TIME
            && slot.state == State::Done
            && slot.result == AGAIN
            && matches!(slot.memory, Memory::Items(Items { count: 0, .. }));
        if is {
            self.again(token);
        }
        is
    }

    /// The result of a one-shot operation that is Done. It stays; [`Inflight::release`] gives the memory back,
    /// or [`Inflight::requeue`] continues.
    #[inline]
    pub(crate) fn result(&mut self, token: Token) -> i32 {
        let slot = self.live(token);
        debug_assert_eq!(slot.state, State::Done);
        slot.result
    }

    /// Bytes transferred so far.
    #[inline]
    pub(crate) fn done(&mut self, token: Token) -> &mut u32 {
        &mut self.live(token).done
    }

    /// What the operation names, while the driver does not have it.
    #[inline]
    pub(crate) fn memory(&mut self, token: Token) -> &mut Memory {
        let slot = self.live(token);
        debug_assert!(matches!(slot.state, State::Queued | State::Done), "{:?}", slot.state);
        &mut slot.memory
    }

    /// Done to Queued: there is more to transfer.
    pub(crate) fn requeue(&mut self, token: Token) {
        let slot = self.live(token);
        debug_assert_eq!(slot.state, State::Done);
        slot.state = State::Queued;
    }

    /// The driver said that it has let go, without effect. A one-shot operation is Queued again; a standing one
    /// is over, as if cancelled.
    pub(crate) fn retract(&mut self, token: Token) {
        let slot = self.live(token);
        debug_assert!(matches!(slot.state, State::Submitted | State::Armed));
        if slot.kind.is_standing() {
            slot.state = State::Done;
            slot.result = -libc::ECANCELED;
        } else {
            slot.state = State::Queued;
        }
    }

    /// A cancel by its owner's wish was asked for: its end is not to be taken for want of credit.
    pub(crate) fn cancel_asked(&mut self, token: Token, now: Moment) {
        let slot = self.live(token);
        slot.flags |= CANCEL_ASKED;
        slot.event = Event::Cancelled;
        slot.since = millis(now);
    }

    /// A cancelled operation that the driver does not have is Done, with ECANCELED.
    pub(crate) fn finish_cancelled(&mut self, token: Token) {
        let slot = self.live(token);
        debug_assert_eq!(slot.state, State::Queued);
        slot.state = State::Done;
        slot.result = -libc::ECANCELED;
    }

    /// The future is gone, and the driver still has it: to Orphaned. Its memory stays here.
    pub(crate) fn orphan(&mut self, token: Token, now: Moment) -> Option<Waker> {
        let slot = self.live(token);
        debug_assert!(matches!(slot.state, State::Submitted | State::Armed), "{:?}", slot.state);
        slot.state = State::Orphaned;
        slot.event = Event::Dropped;
        slot.since = millis(now);
        slot.waker.take()
    }

    /// Takes back what a standing operation brought and nobody took, one after another.
    pub(crate) fn untaken(&mut self, token: Token) -> Option<Outcome> {
        self.live(token);
        self.pop(token.index)
    }

    /// Gives the slot up, and its memory out.
    #[inline]
    pub(crate) fn release(&mut self, token: Token) -> Memory {
        while let Some(outcome) = self.pop(token.index) {
            // Callers dispose of items first; a lease that is still here goes back by itself.
            debug_assert!(outcome.lease.is_some() || outcome.result <= 0, "a descriptor would be lost");
        }
        let free = self.free;
        let slot = self.live(token);
        debug_assert!(slot.state != State::Free);
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        slot.descriptor = free;
        // The last future that waited took the waker with it, or was woken.
        slot.waker = None;
        let memory = std::mem::replace(&mut slot.memory, Memory::None);
        self.free = token.index;
        self.used -= 1;
        memory
    }

    /// Slots that the driver has.
    #[cfg(test)]
    fn with_driver(&self) -> usize {
        self.slots().filter(|(_, slot)| slot.is_with_driver()).count()
    }

    /// The operations on files that somebody may still wait for.
    pub(crate) fn files(&self) -> Vec<Token> {
        let is_one =
            |slot: &Slot| matches!(slot.kind, Kind::Open | Kind::File) && slot.state != State::Orphaned;
        let files = self.slots().filter(|(_, slot)| is_one(slot));
        files.map(|(index, slot)| Token { index, generation: slot.generation }).collect()
    }

    /// Every waker, out of its slot.
    pub(crate) fn take_wakers(&mut self) -> impl Iterator<Item = Waker> + '_ {
        self.chunks.iter_mut().flatten().filter_map(|slot| slot.waker.take())
    }

    /// Keeps for ever what the kernel may still touch. Returns how many operations that is.
    pub(crate) fn leak(&mut self) -> u64 {
        let mut leaked = 0;
        for slot in self.chunks.iter_mut().flatten().filter(|slot| slot.is_with_driver()) {
            std::mem::forget(std::mem::replace(&mut slot.memory, Memory::None));
            leaked += 1;
        }
        leaked
    }

    fn slots(&self) -> impl Iterator<Item = (u32, &Slot)> {
        let all = self.chunks.iter().flatten().enumerate();
        all.filter(|(_, slot)| slot.state != State::Free).map(|(index, slot)| (index as u32, slot))
    }

    /// One line for every operation: what, on which socket, in which state, for how long, last event. `name`
    /// tells of the socket at an index of the table.
    pub(crate) fn dump(
        &self,
        f: &mut dyn fmt::Write,
        now: Moment,
        name: &mut dyn FnMut(u32) -> String,
    ) -> fmt::Result {
        for (index, slot) in self.slots() {
            let age = millis(now).wrapping_sub(slot.since);
            let target = match &slot.memory {
                // Not connected yet: where to is all there is.
                Memory::Address(address) => match address.as_socket() {
                    Some(address) => format!("{} to {address}", name(slot.descriptor)),
                    None => name(slot.descriptor),
                },
                Memory::Request(request) => request.to_string(),
                _ => name(slot.descriptor),
            };
            writeln!(
                f,
                "slot {index:>5}  {:<8} on {target}  {:<9}  {age:>7} ms since {}{}{}",
                slot.kind,
                format!("{:?}", slot.state).to_lowercase(),
                slot.event,
                if slot.waker.is_some() { ", awaited" } else { "" },
                if slot.flags & OUT_OF_CREDIT != 0 { ", out of credit" } else { "" },
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Event::Made => "it was made",
            Event::HandedOver => "it was handed over",
            Event::Ready => "readiness was told",
            Event::Item => "a result came",
            Event::Last => "its last result came",
            Event::Cancelled => "a cancel was asked for",
            Event::Dropped => "its future was dropped",
        })
    }
}

impl Slot {
    fn free(first: u32, at: u32) -> Slot {
        let next = if at as usize + 1 == CHUNK { NONE } else { first + at + 1 };
        Slot {
            generation: 0,
            state: State::Free,
            kind: Kind::Accept,
            flags: 0,
            event: Event::Made,
            result: 0,
            descriptor: next,
            waker: None,
            memory: Memory::None,
            done: 0,
            since: 0,
        }
    }

    /// Standing, and told that an attempt may succeed: who is to be woken.
    #[inline]
    fn told_ready(&mut self, now: Moment) -> Option<Waker> {
        self.since = millis(now);
        self.event = Event::Ready;
        self.waker.take()
    }

    /// A future waits for it, to be woken by this. Gives out who was before, if that is another.
    #[inline]
    pub(crate) fn wait(&mut self, caller: &Caller<'_>) -> Option<Waker> {
        self.flags |= AWAITED;
        match &self.waker {
            Some(before) if caller.is(before) => None,
            _ => self.waker.replace(caller.waker()),
        }
    }

    /// Its future has something and waits no more. A cancel that was for it is nobody's: what it ends begins again.
    #[inline]
    pub(crate) fn serve(&mut self) {
        if self.flags & CANCEL_ASKED != 0 {
            self.flags |= OUT_OF_CREDIT;
        }
        self.flags &= !(AWAITED | CANCEL_ASKED);
    }

    fn is_with_driver(&self) -> bool {
        matches!(self.state, State::Submitted | State::Armed | State::Orphaned)
    }
}

fn millis(now: Moment) -> u32 {
    // Wraps after 49 days, which only the dump sees.
    (now.0 / 1_000_000) as u32
}

#[cfg(test)]
mod tests;
