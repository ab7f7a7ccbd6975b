//! Operations on a scripted driver, with a clock that stands still.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::buf::Buf;
use crate::clock::Clock;
use crate::inflight::Memory;
use crate::op::Span;
use crate::pool::{Lease, Pool};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Poll, Wake};

/// The script of the driver, and a record of its calls.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) now: Rc<Cell<u64>>,
    /// Result of every attempt.
    attempt: Cell<Option<i32>>,
    attempts: Cell<u32>,
    submitted: RefCell<Vec<Token>>,
    /// A wait reports `Ready` instead of the cancel.
    says_ready: Cell<bool>,
    /// The errno it ends with, instead of ECANCELED.
    errno: Cell<Option<i32>>,
    /// Duration of a wait with a result, of which it reports one. A wait without a result lasts to its limit.
    wait_ns: Cell<u64>,
    pub(crate) waits: Cell<u32>,
    /// Operations never complete.
    is_stuck: Cell<bool>,
    /// The patience that an abandoned driver got.
    abandoned: Cell<Option<Duration>>,
    /// Called during a wait without a limit.
    pub(crate) in_wait: RefCell<Option<Box<dyn FnMut()>>>,
}

struct Stub(Rc<Script>, Rc<Pool>);

impl Driver for Stub {
    fn name(&self) -> DriverName {
        DriverName::Sim
    }
    fn call(&mut self, _: Call<'_>) -> io::Result<Answer> {
        Ok(Answer::Done)
    }
    fn tries(&self) -> bool {
        true
    }
    fn attempt(&mut self, op: &Op<'_>) -> Option<Outcome> {
        self.0.attempts.set(self.0.attempts.get() + 1);
        let result = self.0.attempt.get()?;
        let most = match op {
            Op::Send { bytes, .. } | Op::SendLasting { bytes, .. } => bytes.bytes,
            _ => usize::MAX,
        };
        Some(Outcome::of(i32::try_from(most).unwrap_or(i32::MAX).min(result)))
    }
    fn attempt_send(&mut self, on: Target, bytes: Span) -> Option<i32> {
        self.attempt(&Op::Send { on, bytes, whole: false }).map(|outcome| outcome.result)
    }
    fn attempt_receive(&mut self, _: Target, _: bool) -> Option<std::result::Result<Lease, i32>> {
        None
    }
    fn submit(&mut self, token: Token, _: &Op<'_>) {
        self.0.submitted.borrow_mut().push(token);
    }
    fn cancel(&mut self, _: Token, _: Kind, _: Target) -> Cancelled {
        Cancelled::Asked
    }
    fn wait(&mut self, until: Until, out: &mut Vec<Completion>) -> io::Result<()> {
        let told = if self.0.is_stuck.get() { None } else { self.0.submitted.borrow_mut().pop() };
        let told = told.map(|token| Completion {
            token,
            news: match self.0.says_ready.get() {
                true => News::Ready,
                false => News::Last(Outcome::of(-self.0.errno.get().unwrap_or(libc::ECANCELED))),
            },
        });
        let took = match (&told, until) {
            (None, Until::For(span)) => span.as_nanos() as u64,
            _ => self.0.wait_ns.get(),
        };
        self.0.now.set(self.0.now.get() + took);
        self.0.waits.set(self.0.waits.get() + 1);
        if until == Until::News
            && let Some(happens) = self.0.in_wait.borrow_mut().as_mut()
        {
            happens();
        }
        out.extend(told);
        Ok(())
    }
    fn alarm(&self) -> Option<Arc<OwnedFd>> {
        None
    }
    fn pool(&self) -> &Rc<Pool> {
        &self.1
    }
    fn sends_from_pool(&self) -> bool {
        false
    }
    fn clock(&self) -> Clock {
        Clock::Virtual(Rc::clone(&self.0.now))
    }
    fn counters(&self) -> Counters {
        Counters::default()
    }
    fn abandon(self: Box<Self>, patience: Duration) {
        self.0.abandoned.set(Some(patience));
    }
}

/// Returns a driver and its script.
pub(crate) fn stub() -> (Box<dyn Driver>, Rc<Script>) {
    let script = Rc::new(Script::default());
    (Box::new(Stub(Rc::clone(&script), Pool::new(2, 64).unwrap())), script)
}

fn io() -> (Io, Rc<Script>) {
    let (driver, script) = stub();
    (Io::new(driver), script)
}

/// Counts how often it is woken.
#[derive(Default)]
struct Counting(AtomicU32);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn caller() -> Caller<'static> {
    Caller::any(Waker::noop())
}

/// Runs an accept that the kernel refuses to its end; returns the number of turns.
fn accept(io: &mut Io, on: Target) -> (std::result::Result<Target, i32>, u32) {
    for turns in 0..1000 {
        match io.poll_accept(on.index, &caller()) {
            Poll::Ready(accepted) => return (accepted, turns),
            Poll::Pending => io.turn(Until::For(PARKED_FOR)).unwrap(),
        }
        io.answers_left = ANSWERS_PER_POLL;
    }
    panic!("it spins");
}

#[test]
fn an_accept_that_a_policy_refuses_pauses_and_then_fails() {
    let (mut io, script) = io();
    let on = io.open(Descriptor::Sim(0));
    script.errno.set(Some(libc::EPERM));
    for round in 1..=2 {
        let (accepted, _) = accept(&mut io, on);
        assert_eq!(accepted.map(|_| ()), Err(-libc::EPERM));
        assert_eq!(io.counters().accept_parked, 3 * round);
        // The error names possible causes.
        assert!(io.error(Kind::Accept, on.index, -libc::EPERM).to_string().contains("seccomp"));
    }
    assert!(script.now.get() >= 2 * 3 * PARKED_FOR.as_nanos() as u64, "it pauses in between");
}

#[test]
fn a_shutdown_has_its_whole_patience_even_long_after_the_last_turn() {
    let (mut io, script) = io();
    for number in 0..20 {
        let on = io.open(Descriptor::Sim(number));
        assert!(io.poll_receive(on.index, &caller()).is_pending());
    }
    script.now.set(Duration::from_secs(3600).as_nanos() as u64);
    // One result a millisecond.
    script.wait_ns.set(1_000_000);
    assert_eq!(io.shut_down(Duration::from_secs(1)).0, 0);
}

#[test]
fn an_abandoned_driver_gets_the_rest_of_the_patience() {
    let (mut io, script) = io();
    let on = io.open(Descriptor::Sim(0));
    assert!(io.poll_receive(on.index, &caller()).is_pending());
    script.is_stuck.set(true);
    assert_eq!(io.shut_down(Duration::from_millis(300)).0, 1);
    assert_eq!(script.now.get(), Duration::from_millis(300).as_nanos() as u64);
    assert_eq!(script.abandoned.get(), Some(Duration::ZERO));
}

#[test]
fn a_lasting_listener_error_is_returned_and_a_lost_connection_is_skipped() {
    for (errno, ends) in [
        (libc::ECONNABORTED, false),
        (libc::EPERM, false),
        (libc::ENETDOWN, false),
        (libc::EACCES, true),
        (libc::ENOSYS, true),
        (libc::EFAULT, true),
        (libc::EINVAL, true),
    ] {
        let (mut io, script) = io();
        let on = io.open(Descriptor::Sim(0));
        script.attempt.set(Some(-errno));
        match io.poll_accept(on.index, &caller()) {
            Poll::Ready(Err(why)) => assert!(ends && why == -errno, "{errno}: {why}"),
            Poll::Ready(Ok(_)) => panic!("nobody came"),
            Poll::Pending => assert!(!ends, "{errno}"),
        }
    }
}

#[test]
fn a_parked_listener_that_is_polled_repeatedly_parks_once_and_wakes_the_last_caller() {
    let (mut io, script) = io();
    let on = io.open(Descriptor::Sim(0));
    script.attempt.set(Some(-libc::EMFILE));
    // As a combinator may that polls with a waker of its own each time: no two are equal.
    let callers: Vec<_> = (0..50).map(|_| Arc::new(Counting::default())).collect();
    for waker in callers.iter().cloned().map(Waker::from) {
        assert!(io.poll_accept(on.index, &Caller::any(&waker)).is_pending());
        script.now.set(script.now.get() + 100_000_000);
        io.read_clock();
    }
    assert_eq!(io.parked.len(), 1);
    assert_eq!(io.deadline(), Some(Moment(PARKED_FOR.as_nanos() as u64)));
    io.turn(Until::Now).unwrap();
    io.wakes.drain(..).for_each(Waker::wake);
    let woken: Vec<_> = callers.iter().map(|caller| caller.0.load(Ordering::Relaxed)).collect();
    assert_eq!((woken[..49].iter().sum::<u32>(), woken[49]), (0, 1));
}

#[test]
fn a_close_that_is_polled_repeatedly_keeps_one_waker() {
    let (mut io, _) = io();
    let on = io.open(Descriptor::Sim(0));
    assert!(io.poll_receive(on.index, &caller()).is_pending());
    io.close(on.index);
    for _ in 0..50 {
        assert!(io.poll_closed(on, &caller()).is_pending());
    }
    assert_eq!(io.closers.len(), 1);
    io.turn(Until::Now).unwrap();
    assert!(io.poll_closed(on, &caller()).is_ready());
    assert!(io.closers.is_empty());
    assert_eq!(io.wakes.len(), 1);
}

/// A driver that waits for readiness may get a cancel for an operation that has just become ready. If the
/// attempt then finds nothing, no second cancel follows.
#[test]
fn a_cancel_that_races_with_readiness_ends_an_operation_that_would_block() {
    let (mut io, script) = io();
    script.says_ready.set(true);
    let on = io.open(Descriptor::Sim(0));
    let mut sending = Sending::new(Memory::Buf(Buf::Vec(b"bytes".to_vec())));
    let mut receiving = OneShot::Fresh(Memory::Buf(Buf::Vec(Vec::with_capacity(10))));
    assert!(io.poll_send(on.index, &mut sending, true, &caller()).is_pending());
    assert!(io.poll_receive_into(on.index, &mut receiving, &caller()).is_pending());
    io.cancel(on, false);
    while !script.submitted.borrow().is_empty() {
        io.turn(Until::Now).unwrap();
    }
    let sent = io.poll_send(on.index, &mut sending, true, &caller());
    assert!(matches!(sent, Poll::Ready(Err(errno)) if errno == -libc::ECANCELED), "{sent:?}");
    let received = io.poll_receive_into(on.index, &mut receiving, &caller());
    assert!(matches!(received, Poll::Ready(Err(errno)) if errno == -libc::ECANCELED), "{received:?}");
}

/// Progress is counted in 32 bits. A larger send is refused before anything is sent; a send that may be
/// partial is accepted.
#[test]
fn four_gigabytes_at_once_are_refused_and_a_little_less_all_go() {
    let (mut io, script) = io();
    let on = io.open(Descriptor::Sim(0));
    script.attempt.set(Some(i32::MAX));
    // The memory is never touched, so it is not allocated; but a kernel with less memory may refuse to
    // reserve it.
    const LENGTH: usize = (4 << 30) + 10;
    if Vec::<u8>::new().try_reserve_exact(LENGTH).is_err() {
        return eprintln!("skipped: this machine does not give 4 GiB of addresses");
    }
    let bytes = vec![0; LENGTH];
    let mut sending = Sending::new(Memory::Buf(Buf::Vec(bytes)));
    assert!(
        matches!(io.poll_send(on.index, &mut sending, true, &caller()), Poll::Ready(Err(errno)) if errno == -libc::EMSGSIZE)
    );
    assert_eq!(script.attempts.get(), 0);
    let memory = sending.take_memory();
    let mut sending = Sending::new(memory);
    let polled = io.poll_send(on.index, &mut sending, false, &caller());
    assert!(matches!(polled, Poll::Ready(Ok(sent)) if sent == i32::MAX as u32));
    let Memory::Buf(Buf::Vec(mut bytes)) = sending.take_memory() else { panic!("the buffer comes back") };
    bytes.truncate(u32::MAX as usize);
    // In the next poll: a send of this size uses up more than the budget of one poll.
    io.answers_left = ANSWERS_PER_POLL;
    let mut sending = Sending::new(Memory::Buf(Buf::Vec(bytes)));
    let polled = io.poll_send(on.index, &mut sending, true, &caller());
    assert!(matches!(polled, Poll::Ready(Ok(u32::MAX))));
}
