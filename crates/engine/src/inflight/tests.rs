//! Every order of events, to depth 8, compared with an independent model.
//!
//! The slots have states; the model has none. It tracks three things: whether the kernel may access the
//! memory now, where each result of the driver went, and whether a waiting task should have been woken. Each
//! order is run from the beginning on new slots, and the two are compared after every event.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::buf::Buf;
use crate::pool::Lease;
use crate::pool::Tail;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Wake;

const NOW: Moment = Moment(0);
const DEPTH: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The future is polled; a queued operation is submitted.
    Poll,
    /// The future is dropped, and the driver answers `Gone`.
    DropGone,
    DropAsked,
    /// The owner cancels it, and the driver answers `Gone`.
    CancelGone,
    CancelAsked,
    /// News of the driver.
    Ready,
    Item,
    /// The last completion with an effect: a descriptor, bytes, a count.
    LastGood,
    LastError,
    LastCancelled,
}

const STEPS: [Step; 10] = [
    Step::Poll,
    Step::DropGone,
    Step::DropAsked,
    Step::CancelGone,
    Step::CancelAsked,
    Step::Ready,
    Step::Item,
    Step::LastGood,
    Step::LastError,
    Step::LastCancelled,
];

struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The model, without any state of a slot.
struct Play {
    kind: Kind,
    slots: Inflight,
    token: Token,
    /// The test's reference to the memory; the other moves with the memory.
    memory: Rc<[u8]>,
    wakes: Arc<Count>,
    /// The driver has the operation: the kernel may access the memory.
    with_driver: bool,
    future: Future,
    /// Results with an effect that the driver reported, and those that reached the future or were disposed
    /// of.
    told: VecDeque<i32>,
    arrived: VecDeque<i32>,
    disposed: Vec<i32>,
    /// The final result that the future got.
    ended: Option<i32>,
    /// An event has occurred since the future was last polled.
    news: bool,
    slot_free: bool,
    next_result: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Future {
    Fresh,
    Waiting,
    Gone,
    Over,
}

impl Play {
    fn new(kind: Kind) -> Play {
        let memory: Rc<[u8]> = Rc::from(&b"what the kernel may touch"[..]);
        let mut slots = Inflight::new();
        // Use the slot once before, so that generations matter.
        let earlier = slots.insert(Kind::Connect, 9, Memory::None, 0, NOW);
        slots.release(earlier);
        let held = match kind {
            Kind::Accept | Kind::Receive => Memory::Items(Items::EMPTY),
            _ => Memory::Buf(Buf::Shared(Rc::clone(&memory))),
        };
        let token = slots.insert(kind, 3, held, 0, NOW);
        Play {
            kind,
            slots,
            token,
            memory,
            wakes: Arc::new(Count(AtomicU32::new(0))),
            with_driver: false,
            future: Future::Fresh,
            told: VecDeque::new(),
            arrived: VecDeque::new(),
            disposed: Vec::new(),
            ended: None,
            news: false,
            slot_free: false,
            next_result: 100,
        }
    }

    /// Returns whether this event is possible now.
    fn can(&self, step: Step) -> bool {
        let alive = matches!(self.future, Future::Fresh | Future::Waiting);
        match step {
            Step::Poll => alive,
            Step::DropGone | Step::DropAsked | Step::CancelGone | Step::CancelAsked => {
                // Without the driver the answer "asked" is impossible.
                let asked = matches!(step, Step::DropAsked | Step::CancelAsked);
                alive && !self.slot_free && (self.with_driver || !asked)
            }
            Step::Ready => self.with_driver,
            Step::Item => self.with_driver && self.kind.is_standing(),
            Step::LastGood | Step::LastError | Step::LastCancelled => self.with_driver,
        }
    }

    fn outcome(&mut self) -> Outcome {
        self.next_result += 1;
        let result = self.next_result;
        self.told.push_back(result);
        let lease = (self.kind == Kind::Receive).then(|| {
            let bytes = vec![0; result as usize];
            Lease::own(Box::new(Tail { bytes, start: 0 }))
        });
        Outcome { result, lease }
    }

    fn play(&mut self, step: Step) {
        match step {
            Step::Poll => self.poll(),
            Step::DropGone | Step::DropAsked => self.drop_future(step == Step::DropGone),
            Step::CancelGone | Step::CancelAsked => self.cancel(step == Step::CancelGone),
            Step::Ready => self.driver(News::Ready, !self.kind.is_standing()),
            Step::Item => {
                let outcome = self.outcome();
                self.driver(News::Item(outcome), false);
            }
            Step::LastGood => {
                let outcome = self.outcome();
                self.driver(News::Last(outcome), true);
            }
            Step::LastError => self.driver(News::Last(Outcome::of(-libc::ECONNRESET)), true),
            Step::LastCancelled => self.driver(News::Last(Outcome::of(-libc::ECANCELED)), true),
        }
    }

    /// Polls the way `Io` does.
    fn poll(&mut self) {
        self.news = false;
        self.future = Future::Waiting;
        if self.kind.is_standing() {
            match self.slots.next(self.token) {
                Next::Item(outcome) => {
                    self.arrived.push_back(outcome.result);
                    // There may be more results: a future takes one, and the next future asks again.
                    self.future = Future::Fresh;
                    return;
                }
                Next::Over(result) => return self.end(result),
                Next::Again => {
                    self.slots.hand_over(self.token);
                    self.with_driver = true;
                }
                Next::Empty => {}
            }
        } else {
            if self.slots.state(self.token) == State::Done {
                let result = self.slots.result(self.token);
                if result > 0 {
                    self.arrived.push_back(result);
                }
                self.slots.release(self.token);
                return self.end(result);
            }
            if self.slots.state(self.token) == State::Queued {
                self.slots.hand_over(self.token);
                self.with_driver = true;
            }
        }
        let waker = Arc::clone(&self.wakes).into();
        self.slots.set_waker(self.token, &Caller::any(&waker));
    }

    fn end(&mut self, result: i32) {
        assert!(!self.kind.is_standing() || result <= 0, "an item is told as an end: {result}");
        self.ended = Some(result);
        self.future = Future::Over;
        self.slot_free = true;
    }

    fn drop_future(&mut self, gone: bool) {
        self.future = Future::Gone;
        if self.with_driver && !gone {
            while let Some(outcome) = self.slots.untaken(self.token) {
                self.disposed.push(outcome.result);
            }
            self.slots.orphan(self.token, NOW);
            return;
        }
        if self.with_driver {
            self.slots.retract(self.token);
            self.with_driver = false;
        }
        if self.slots.state(self.token) == State::Done && !self.kind.is_standing() {
            let result = self.slots.result(self.token);
            self.disposed.extend((result > 0).then_some(result));
        }
        while let Some(outcome) = self.slots.untaken(self.token) {
            self.disposed.push(outcome.result);
        }
        self.slots.release(self.token);
        self.slot_free = true;
    }

    fn cancel(&mut self, gone: bool) {
        self.slots.cancel_asked(self.token, NOW);
        if self.with_driver && gone {
            self.slots.retract(self.token);
            self.with_driver = false;
            if !self.kind.is_standing() {
                self.slots.finish_cancelled(self.token);
            }
            if let Some(waker) = self.slots.take_waker(self.token) {
                waker.wake();
            }
            self.news = true;
        }
    }

    fn driver(&mut self, news: News, lets_go: bool) {
        let before = self.wakes.0.load(Ordering::Relaxed);
        let waited = self.future == Future::Waiting && !self.news;
        let effect = self.slots.complete(self.token, news, NOW);
        if lets_go {
            self.with_driver = false;
        }
        match effect {
            Effect::Stale => panic!("the driver had it"),
            Effect::News { waker, let_go, descriptor, .. } => {
                assert_eq!((let_go, descriptor), (lets_go, 3));
                if let Some(waker) = waker {
                    waker.wake();
                }
                if self.future != Future::Gone {
                    self.news = true;
                    let woken = self.wakes.0.load(Ordering::Relaxed) - before;
                    assert_eq!(woken, u32::from(waited), "a waiting future is woken once, another never");
                }
            }
            Effect::Orphaned(remains) => {
                assert_eq!(self.future, Future::Gone);
                assert_eq!((remains.let_go, remains.descriptor), (lets_go, 3));
                self.disposed.extend((remains.outcome.result > 0).then_some(remains.outcome.result));
                self.slot_free |= lets_go;
            }
        }
    }

    /// Checks what must hold after every event.
    fn check(&mut self) {
        let holds_memory = Rc::strong_count(&self.memory) == 2;
        if !self.kind.is_standing() {
            if self.with_driver {
                assert!(holds_memory, "the kernel may touch it, and it is gone");
            }
            if self.slot_free {
                assert!(!holds_memory, "nobody can touch it, and it is kept");
            }
        }
        assert_eq!(self.slots.used(), usize::from(!self.slot_free), "one slot, until it is over");
        assert_eq!(self.slots.with_driver(), usize::from(self.with_driver));
        // Each result arrives once, in one place, in order.
        let mut seen: Vec<i32> = self.arrived.iter().chain(&self.disposed).copied().collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), self.arrived.len() + self.disposed.len(), "told twice");
        assert!(self.arrived.iter().eq(self.told.iter().take(self.arrived.len())), "out of order");
        if self.slot_free {
            assert_eq!(seen.len(), self.told.len(), "lost: {:?} of {:?}", seen, self.told);
        }
        // A token of this generation is invalid once the slot is free.
        if self.slot_free {
            let stale = self.slots.complete(self.token, News::Ready, NOW);
            assert!(matches!(stale, Effect::Stale));
        }
    }
}

/// Runs every possible order, and returns their number.
fn every_order(kind: Kind) -> u64 {
    fn deeper(kind: Kind, order: &mut Vec<Step>, orders: &mut u64) {
        let mut play = Play::new(kind);
        for step in order.iter() {
            play.play(*step);
        }
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| play.check())).is_err() {
            panic!("{kind:?} after {order:?}");
        }
        *orders += 1;
        if order.len() == DEPTH {
            return;
        }
        for step in STEPS {
            if play.can(step) {
                order.push(step);
                deeper(kind, order, orders);
                order.pop();
            }
        }
    }
    let mut orders = 0;
    deeper(kind, &mut Vec::new(), &mut orders);
    orders
}

#[test]
fn no_order_of_events_frees_what_the_kernel_may_touch_or_loses_a_result() {
    for kind in
        [Kind::Send, Kind::ReceiveInto, Kind::SendMessage, Kind::ReceiveMessage, Kind::Accept, Kind::Receive]
    {
        let orders = every_order(kind);
        // Fewer would mean that orders are skipped.
        assert!(orders > 1_000, "{kind:?}: {orders}");
    }
}

#[test]
fn a_stream_that_is_not_read_runs_out_of_credit_and_is_armed_again_when_it_is() {
    let mut play = Play::new(Kind::Receive);
    play.play(Step::Poll);
    for nth in 1..=CREDIT {
        let outcome = play.outcome();
        match play.slots.complete(play.token, News::Item(outcome), NOW) {
            Effect::News { out_of_credit, .. } => assert_eq!(out_of_credit, nth == CREDIT),
            other => panic!("{other:?}"),
        }
    }
    // The end is requested once: later items do not request it again.
    let outcome = play.outcome();
    let effect = play.slots.complete(play.token, News::Item(outcome), NOW);
    assert!(matches!(effect, Effect::News { out_of_credit: false, .. }));
    let last = News::Last(Outcome::of(-libc::ECANCELED));
    assert!(matches!(play.slots.complete(play.token, last, NOW), Effect::News { let_go: true, .. }));
    for _ in 0..=CREDIT {
        assert!(matches!(play.slots.next(play.token), Next::Item(_)));
    }
    assert!(matches!(play.slots.next(play.token), Next::Again));
}

#[test]
fn a_stream_that_received_much_at_once_is_in_bulk_from_then_on() {
    let much = || {
        let bytes = vec![0; CREDIT_BYTES as usize];
        let lease = Lease::own(Box::new(Tail { bytes, start: 0 }));
        Outcome { result: CREDIT_BYTES as i32, lease: Some(lease) }
    };
    let mut slots = Inflight::new();
    let token = slots.insert(Kind::Receive, 0, Memory::Items(Items::EMPTY), 0, NOW);
    assert!(matches!(slots.op(token, Target::NONE), Op::Receive { .. }));
    slots.hand_over(token);
    let effect = slots.complete(token, News::Item(much()), NOW);
    assert!(matches!(effect, Effect::News { out_of_credit: true, .. }));
    slots.complete(token, News::Last(Outcome::of(-libc::ECANCELED)), NOW);
    assert!(matches!(slots.next(token), Next::Item(_)));
    // The receive was ended: more data must be requested.
    assert!(!slots.asks_ahead(token));
    assert!(matches!(slots.next(token), Next::Again));
    for _ in 0..3 {
        assert!(matches!(slots.op(token, Target::NONE), Op::ReceiveBulk { .. }));
        slots.hand_over(token);
        slots.complete(token, News::Last(much()), NOW);
        assert!(matches!(slots.next(token), Next::Item(_)));
        assert!(slots.asks_ahead(token));
        assert_eq!(slots.state(token), State::Queued);
    }
    // A cancel of the owner is kept.
    slots.hand_over(token);
    slots.set_waker(token, &Caller::any(Waker::noop()));
    slots.cancel_asked(token, NOW);
    slots.complete(token, News::Last(Outcome::of(-libc::ECANCELED)), NOW);
    assert!(!slots.asks_ahead(token));
    assert!(matches!(slots.next(token), Next::Over(errno) if errno == -libc::ECANCELED));
}

#[test]
fn a_stream_is_in_bulk_from_a_full_buffer_until_eight_small_receives_in_a_row() {
    let mut slots = Inflight::new();
    let token = slots.insert(Kind::Receive, 0, Memory::Items(Items::EMPTY), 0, NOW);
    let mut bulk_after = |bytes| {
        slots.brought(token.index, bytes, 4096);
        slots.is_bulk(token.index)
    };
    assert!(!bulk_after(4095));
    assert!(bulk_after(4096));
    for _ in 0..3 {
        for _ in 0..7 {
            assert!(bulk_after(4096), "little, and not for long enough");
        }
        assert!(bulk_after(4097), "much: counting begins anew");
    }
    for _ in 0..7 {
        assert!(bulk_after(1));
    }
    assert!(!bulk_after(1));
    assert!(bulk_after(5000));
    assert!(bulk_after(1), "and again from the beginning");
}

#[test]
fn a_cancel_by_the_owner_is_final_even_when_credit_was_used_up() {
    let mut play = Play::new(Kind::Receive);
    play.play(Step::Poll);
    for _ in 0..CREDIT {
        play.play(Step::Item);
    }
    for _ in 0..CREDIT {
        assert!(matches!(play.slots.next(play.token), Next::Item(_)));
    }
    play.play(Step::Poll);
    play.play(Step::CancelAsked);
    play.play(Step::LastCancelled);
    assert!(matches!(play.slots.next(play.token), Next::Over(errno) if errno == -libc::ECANCELED));
}

#[test]
fn a_cancel_affects_the_waiting_receive_and_not_the_next_one() {
    let mut play = Play::new(Kind::Receive);
    play.play(Step::Poll);
    play.play(Step::CancelAsked);
    play.play(Step::Item);
    play.play(Step::LastCancelled);
    assert!(matches!(play.slots.next(play.token), Next::Item(_)), "what came is the outcome");
    assert!(matches!(play.slots.next(play.token), Next::Again));
}

#[test]
fn a_cancel_is_not_lost_when_the_operation_ends_at_the_same_time() {
    for errno in [libc::EAGAIN, libc::EINTR, libc::ENOBUFS] {
        let mut slots = Inflight::new();
        let token = slots.insert(Kind::Receive, 0, Memory::Items(Items::EMPTY), 0, NOW);
        slots.hand_over(token);
        slots.set_waker(token, &Caller::any(Waker::noop()));
        assert!(slots.is_waited_for(token));
        slots.complete(token, News::Last(Outcome::of(-errno)), NOW);
        // Woken and not polled yet: it still counts as waiting, and can be cancelled.
        assert!(slots.is_waited_for(token));
        slots.cancel_asked(token, NOW);
        assert!(matches!(slots.next(token), Next::Over(errno) if errno == -libc::ECANCELED));
    }
}

#[test]
fn slots_are_reused_and_bounded_by_concurrent_operations() {
    let mut slots = Inflight::new();
    let tokens: Vec<_> = (0..1000).map(|n| slots.insert(Kind::Connect, n, Memory::None, 0, NOW)).collect();
    assert_eq!(slots.used(), 1000);
    for token in &tokens {
        slots.release(*token);
    }
    let again: Vec<_> = (0..1000).map(|n| slots.insert(Kind::Connect, n, Memory::None, 0, NOW)).collect();
    assert!(again.iter().all(|token| (token.index as usize) < 1000_usize.next_multiple_of(CHUNK)));
    assert!(again.iter().all(|token| !tokens.contains(token)), "another generation");
}

/// Drops the slots the way a panic during a shutdown does.
#[test]
fn slots_that_are_dropped_keep_what_the_kernel_may_touch() {
    let memory: Rc<[u8]> = Rc::from([1; 8]);
    let watched = Rc::downgrade(&memory);
    let mut slots = Inflight::new();
    let token = slots.insert(Kind::Send, 0, Memory::Buf(Buf::Shared(memory)), 0, NOW);
    slots.hand_over(token);
    drop(slots);
    assert!(watched.upgrade().is_some(), "the kernel may still read it");
    // Memory that is not with the driver is freed.
    let memory: Rc<[u8]> = Rc::from([1; 8]);
    let watched = Rc::downgrade(&memory);
    let mut slots = Inflight::new();
    slots.insert(Kind::Send, 0, Memory::Buf(Buf::Shared(memory)), 0, NOW);
    drop(slots);
    assert!(watched.upgrade().is_none());
}
