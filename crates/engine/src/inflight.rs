//! Slots: one per operation in flight. A slot owns what the kernel may touch.
//!
//! This file is pure: no system call, no clock, no driver. It holds the state of an operation, keeps its
//! memory until no other code can access it, and returns the effect of each event. The table of states is in
//! docs/engine.md; a test in `inflight/tests.rs` runs every order of events.
//!
//! INVARIANT: memory leaves a slot only when the driver has let go of it. From [`Inflight::hand_over`] until
//! a `Last` (for a one-shot operation also a `Ready`, or [`Inflight::retract`] after the driver returned
//! `Gone`) a slot's memory is neither freed, moved nor given out, whatever happens to the future. Dropping
//! the slots leaks it.
//!
//! Slots live in chunks that never move, and are 64 bytes, so that an idle connection costs one cache line
//! here.

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

/// State of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// Not in use.
    Free,
    /// Created, or returned by the driver without effect: to be attempted.
    Queued,
    /// One-shot, with the driver.
    Submitted,
    /// Standing, with the driver.
    Armed,
    /// The driver has released it; the result waits for the future.
    Done,
    /// With the driver, and the future was dropped.
    Orphaned,
}

/// A list of results in [`Inflight::items`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Items {
    first: u32,
    last: u32,
    count: u32,
    /// Number of received bytes in the list.
    bytes: u32,
}

impl Items {
    pub(crate) const EMPTY: Items = Items { first: NONE, last: NONE, count: 0, bytes: 0 };
}

const NONE: u32 = u32::MAX;

/// Maximum number of unread buffers per stream; then its receive is ended until they are read. Without a
/// limit one peer can take every buffer of the ring (measured: 255 of 256).
pub(crate) const CREDIT: u32 = 4;

/// Maximum number of unread bytes per stream. A stream that reaches it is in bulk: from then on its receives
/// are plain calls into a large buffer, made when the task asks. A standing receive would take ten times as
/// much before it could be ended, and leave no buffers for other streams.
pub(crate) const CREDIT_BYTES: u32 = 16 * 1024;

/// Maximum number of connections that a listener holds before the program accepts them; others wait in the
/// kernel's backlog.
pub(crate) const ACCEPT_CREDIT: u32 = 64;

/// Result of a standing operation that ended for a reason unrelated to the stream: it is armed again.
const AGAIN: i32 = -libc::EAGAIN;

/// The engine cancelled it for lack of credit: it is armed again later.
const OUT_OF_CREDIT: u8 = 1;
/// A task has requested the cancel.
const CANCEL_ASKED: u8 = 2;
/// A future waits for it, including one that was woken and not yet polled.
const AWAITED: u8 = 4;
/// A send that may complete partially.
const PARTLY: u8 = 8;
/// A receive of a stream in bulk.
const BULK: u8 = 16;
/// Lowest bit of a counter of consecutive receives that would have fitted a small buffer. When the counter is
/// full and one more follows, the stream leaves bulk.
const LITTLE: u8 = 32;
const LITTLES: u8 = !(LITTLE - 1);

/// The last event of a slot, for the dump.
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
    /// Index in the descriptor table. In a free slot: the next free slot.
    descriptor: u32,
    waker: Option<Waker>,
    memory: Memory,
    /// Bytes transferred by earlier attempts.
    done: u32,
    /// Milliseconds of the runtime's clock at the last event.
    since: u32,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// The effect of a completion.
#[derive(Debug)]
pub(crate) enum Effect {
    /// The generation is over: must not happen.
    Stale,
    /// The future has news.
    News { waker: Option<Waker>, let_go: bool, descriptor: u32, out_of_credit: bool },
    /// The future was dropped: dispose of this.
    Orphaned(Remains),
}

/// Remains of an operation after its future was dropped.
#[derive(Debug)]
pub(crate) struct Remains {
    pub(crate) kind: Kind,
    pub(crate) descriptor: u32,
    pub(crate) outcome: Outcome,
    /// On the last completion: the memory, the bytes transferred before, and the waker of a task that waits
    /// for the end.
    pub(crate) memory: Memory,
    pub(crate) done: u32,
    pub(crate) waker: Option<Waker>,
    /// The driver has released it, and the slot is free.
    pub(crate) let_go: bool,
}

/// What a standing operation has for its future.
#[derive(Debug)]
pub(crate) enum Next {
    /// A result.
    Item(Outcome),
    /// Nothing yet.
    Empty,
    /// Submit it again.
    Again,
    /// It has ended with 0 or a negated errno; the slot is free.
    Over(i32),
}

/// All slots of a runtime.
#[derive(Debug)]
pub(crate) struct Inflight {
    chunks: Vec<Box<[Slot]>>,
    free: u32,
    used: usize,
    /// Results of standing operations that no future has taken yet, as linked lists.
    items: Vec<Node>,
    free_item: u32,
}

#[derive(Debug)]
struct Node {
    outcome: Outcome,
    next: u32,
}

impl Drop for Inflight {
    /// Keeps the invariant on every exit path, including a panic during a shutdown.
    fn drop(&mut self) {
        self.leak();
    }
}

/// Number of slots per chunk: 16 KiB.
const CHUNK: usize = 256;

impl Inflight {
    pub(crate) fn new() -> Inflight {
        Inflight { chunks: Vec::new(), free: NONE, used: 0, items: Vec::new(), free_item: NONE }
    }

    /// Returns the number of slots in use.
    pub(crate) fn used(&self) -> usize {
        self.used
    }

    #[inline]
    fn slot(&mut self, index: u32) -> &mut Slot {
        &mut self.chunks[index as usize / CHUNK][index as usize % CHUNK]
    }

    /// Returns the slot of a token that a future or the table still holds.
    #[inline]
    fn live(&mut self, token: Token) -> &mut Slot {
        let slot = self.slot(token.index);
        assert!(slot.generation == token.generation, "a token of an earlier life");
        slot
    }

    /// Allocates a slot for an operation: Free to Queued.
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

    /// Returns the current token of slot `index`.
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

    /// Returns the operation for the driver. What it points to stays in place until the driver releases it.
    #[inline]
    pub(crate) fn op(&mut self, token: Token, on: Target) -> Op<'_> {
        let slot = self.live(token);
        if slot.is_bulk() {
            return Op::ReceiveBulk { on };
        }
        let done = slot.done as usize;
        let whole = slot.flags & PARTLY == 0;
        op_of(slot.kind, &mut slot.memory, done, on, whole)
    }

    /// Marks a send that may complete partially.
    pub(crate) fn content_with_a_part(&mut self, token: Token) {
        self.live(token).flags |= PARTLY;
    }

    /// Records the submission: Queued to Submitted or Armed.
    #[inline]
    pub(crate) fn hand_over(&mut self, token: Token) {
        let slot = self.live(token);
        debug_assert_eq!(slot.state, State::Queued);
        slot.state = if slot.kind.is_standing() { State::Armed } else { State::Submitted };
        slot.event = Event::HandedOver;
    }

    /// Sets the waker for news. Returns the previous one if it differs.
    #[inline]
    pub(crate) fn set_waker(&mut self, token: Token, caller: &Caller<'_>) -> Option<Waker> {
        self.live(token).wait(caller)
    }

    /// Returns slot `index` if it holds a standing operation of this kind that is with the driver and has no
    /// untaken result.
    #[inline]
    pub(crate) fn empty_handed(&mut self, index: u32, kind: Kind) -> Option<&mut Slot> {
        let slot = self.slot(index);
        let is = slot.state == State::Armed
            && slot.kind == kind
            && matches!(slot.memory, Memory::Items(Items { count: 0, .. }));
        is.then_some(slot)
    }

    /// Records that its future no longer waits; returns the waker.
    #[inline]
    pub(crate) fn clear_waker(&mut self, token: Token) -> Option<Waker> {
        let slot = self.live(token);
        slot.serve();
        slot.waker.take()
    }

    /// Takes the waker, to be woken now; the future counts as waiting until it is polled.
    pub(crate) fn take_waker(&mut self, token: Token) -> Option<Waker> {
        self.live(token).waker.take()
    }

    /// Records that the future of the standing operation in slot `index` got a result without the list.
    #[inline]
    pub(crate) fn served(&mut self, index: u32) {
        self.slot(index).serve();
    }

    /// Returns whether a future waits for it.
    pub(crate) fn is_waited_for(&mut self, token: Token) -> bool {
        self.live(token).flags & AWAITED != 0
    }

    /// Records a waiting future that is going to be polled in any case.
    pub(crate) fn awaits(&mut self, token: Token) {
        self.live(token).flags |= AWAITED;
    }

    /// Returns whether it was never submitted.
    pub(crate) fn is_new(&mut self, token: Token) -> bool {
        self.live(token).event == Event::Made
    }

    /// Returns whether a task has requested its cancel.
    pub(crate) fn is_cancel_asked(&mut self, token: Token) -> bool {
        self.live(token).flags & CANCEL_ASKED != 0
    }

    /// Fast path of [`Inflight::complete`] for `Ready` of a standing operation with a waiting future: returns
    /// the waker. `None`, with nothing changed, in all other cases.
    #[inline]
    pub(crate) fn ready(&mut self, token: Token, now: Moment) -> Option<Waker> {
        let slot =
            self.chunks.get_mut(token.index as usize / CHUNK)?.get_mut(token.index as usize % CHUNK)?;
        let is = slot.generation == token.generation && slot.state == State::Armed && slot.waker.is_some();
        if is { slot.told_ready(now) } else { None }
    }

    /// Records a completion and returns its effect.
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
                // The operation was cancelled before it had any effect: it has ended.
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
                // The last completion may carry an item.
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
            // Completion for an operation that the driver has already released: a driver bug; count it.
            (State::Queued | State::Done | State::Free, _) | (State::Submitted, News::Item(_)) => {
                Effect::Stale
            }
        }
    }

    /// Adds a result to the list of a standing operation. `true`: it has used up its credit and must be
    /// ended.
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
            slot.flags |= BULK;
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

    /// Removes and returns the oldest result of a standing operation.
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

    /// Returns whether the standing receive in slot `index` has bytes, the end or an error that no future has
    /// taken.
    pub(crate) fn has_news(&mut self, index: u32) -> bool {
        let slot = self.slot(index);
        if matches!(slot.memory, Memory::Items(Items { count: 1.., .. })) {
            return true;
        }
        slot.state == State::Done
            && match -slot.result {
                libc::EAGAIN | libc::EINTR | libc::ENOBUFS => false,
                libc::ECANCELED => slot.flags & OUT_OF_CREDIT == 0,
                _ => true,
            }
    }

    /// Returns what a standing operation has for its future.
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
                    // It ended just before the cancel, which must not be lost.
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
        slot.flags &= BULK | LITTLES;
        Next::Again
    }

    /// Returns whether the stream of this receive is in bulk.
    #[inline]
    pub(crate) fn is_bulk(&mut self, index: u32) -> bool {
        self.slot(index).is_bulk()
    }

    /// Takes the stream out of bulk: the next receive uses a small buffer.
    pub(crate) fn end_bulk(&mut self, index: u32) {
        self.slot(index).flags &= !(BULK | LITTLES);
    }

    /// See [`Slot::brought`].
    #[inline]
    pub(crate) fn brought(&mut self, index: u32, bytes: usize, buffer_bytes: usize) {
        self.slot(index).brought(bytes, buffer_bytes);
    }

    /// Returns whether a receive in bulk is to be submitted again, now that its last lease was taken, before
    /// its task asks; it is then Queued. For direct streams, where no receive can be attempted.
    #[inline]
    pub(crate) fn asks_ahead(&mut self, token: Token) -> bool {
        let slot = self.live(token);
        let is = slot.flags & (BULK | CANCEL_ASKED) == BULK
            && slot.state == State::Done
            && slot.result == AGAIN
            && matches!(slot.memory, Memory::Items(Items { count: 0, .. }));
        if is {
            self.again(token);
        }
        is
    }

    /// Returns the result of a one-shot operation that is Done. The slot stays: [`Inflight::release`] returns
    /// its memory, [`Inflight::requeue`] continues.
    #[inline]
    pub(crate) fn result(&mut self, token: Token) -> i32 {
        let slot = self.live(token);
        debug_assert_eq!(slot.state, State::Done);
        slot.result
    }

    /// Returns the number of bytes transferred so far.
    #[inline]
    pub(crate) fn done(&mut self, token: Token) -> &mut u32 {
        &mut self.live(token).done
    }

    /// Returns the memory of an operation that is not with the driver.
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

    /// Records that the driver has released the operation without effect. A one-shot operation is Queued
    /// again; a standing one has ended, as if cancelled.
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

    /// Records a cancel that a task requested, so that the end is not attributed to lack of credit.
    pub(crate) fn cancel_asked(&mut self, token: Token, now: Moment) {
        let slot = self.live(token);
        slot.flags |= CANCEL_ASKED;
        slot.event = Event::Cancelled;
        slot.since = millis(now);
    }

    /// Ends a cancelled operation that is not with the driver: Done, with ECANCELED.
    pub(crate) fn finish_cancelled(&mut self, token: Token) {
        let slot = self.live(token);
        debug_assert_eq!(slot.state, State::Queued);
        slot.state = State::Done;
        slot.result = -libc::ECANCELED;
    }

    /// Records that the future was dropped while the driver has the operation: to Orphaned. The memory stays
    /// here.
    pub(crate) fn orphan(&mut self, token: Token, now: Moment) -> Option<Waker> {
        let slot = self.live(token);
        debug_assert!(matches!(slot.state, State::Submitted | State::Armed), "{:?}", slot.state);
        slot.state = State::Orphaned;
        slot.event = Event::Dropped;
        slot.since = millis(now);
        slot.waker.take()
    }

    /// Removes and returns the next untaken result of a standing operation.
    pub(crate) fn untaken(&mut self, token: Token) -> Option<Outcome> {
        self.live(token);
        self.pop(token.index)
    }

    /// Frees the slot and returns its memory.
    #[inline]
    pub(crate) fn release(&mut self, token: Token) -> Memory {
        while let Some(outcome) = self.pop(token.index) {
            // Callers dispose of items first; a remaining lease is returned to the pool by its drop.
            debug_assert!(outcome.lease.is_some() || outcome.result <= 0, "a descriptor would be lost");
        }
        let free = self.free;
        let slot = self.live(token);
        debug_assert!(slot.state != State::Free);
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        slot.descriptor = free;
        // The last waiting future took the waker, or was woken.
        slot.waker = None;
        let memory = std::mem::replace(&mut slot.memory, Memory::None);
        self.free = token.index;
        self.used -= 1;
        memory
    }

    /// Returns the number of slots with the driver.
    #[cfg(test)]
    fn with_driver(&self) -> usize {
        self.slots().filter(|(_, slot)| slot.is_with_driver()).count()
    }

    /// Returns the file operations that are not orphaned.
    pub(crate) fn files(&self) -> Vec<Token> {
        let is_one =
            |slot: &Slot| matches!(slot.kind, Kind::Open | Kind::File) && slot.state != State::Orphaned;
        let files = self.slots().filter(|(_, slot)| is_one(slot));
        files.map(|(index, slot)| Token { index, generation: slot.generation }).collect()
    }

    /// Takes every waker out of its slot.
    pub(crate) fn take_wakers(&mut self) -> impl Iterator<Item = Waker> + '_ {
        self.chunks.iter_mut().flatten().filter_map(|slot| slot.waker.take())
    }

    /// Leaks what the kernel may still touch. Returns the number of operations.
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

    /// Writes one line per operation: kind, socket, state, age, last event. `name` describes the socket at an
    /// index of the table.
    pub(crate) fn dump(
        &self,
        f: &mut dyn fmt::Write,
        now: Moment,
        name: &mut dyn FnMut(u32) -> String,
    ) -> fmt::Result {
        for (index, slot) in self.slots() {
            let age = millis(now).wrapping_sub(slot.since);
            let target = match &slot.memory {
                // Not connected yet: only the destination is known.
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
            Event::Ready => "readiness was reported",
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

    /// Returns whether it is a receive in bulk.
    #[inline]
    pub(crate) fn is_bulk(&self) -> bool {
        self.flags & BULK != 0
    }

    /// Records the length of a receive. The stream enters bulk when a receive fills a small buffer
    /// (`buffer_bytes`), and leaves it after eight in a row that would have fitted one. So a short message
    /// among large ones changes nothing, and a burst has no lasting effect.
    #[inline]
    pub(crate) fn brought(&mut self, bytes: usize, buffer_bytes: usize) {
        if self.flags & BULK == 0 {
            if bytes >= buffer_bytes {
                self.flags |= BULK;
            }
        } else if bytes > buffer_bytes {
            self.flags &= !LITTLES;
        } else if self.flags & LITTLES == LITTLES {
            self.flags &= !(LITTLES | BULK);
        } else {
            self.flags += LITTLE;
        }
    }

    /// Handles `Ready` of a standing operation: takes its waker.
    #[inline]
    fn told_ready(&mut self, now: Moment) -> Option<Waker> {
        self.since = millis(now);
        self.event = Event::Ready;
        self.waker.take()
    }

    /// Records a waiting future and its waker. Returns the previous waker if it differs.
    #[inline]
    pub(crate) fn wait(&mut self, caller: &Caller<'_>) -> Option<Waker> {
        self.flags |= AWAITED;
        match &self.waker {
            Some(before) if caller.is(before) => None,
            _ => self.waker.replace(caller.waker()),
        }
    }

    /// Records that the future has a result and no longer waits. A pending cancel request is dropped: the
    /// operation that it ends is armed again.
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
    // Wraps after 49 days, which affects only the dump.
    (now.0 / 1_000_000) as u32
}

#[cfg(test)]
mod tests;
