//! The way of an operation with a driver that does as it is told, and a clock that stands still.
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
use std::task::Poll;

/// What the driver is to do, and what it was asked.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) now: Rc<Cell<u64>>,
    /// What every attempt comes to.
    attempt: Cell<Option<i32>>,
    attempts: Cell<u32>,
    submitted: RefCell<Vec<Token>>,
    /// A wait says that an operation may be attempted again, rather than that it is cancelled.
    says_ready: Cell<bool>,
    /// One result is told per wait, and such a wait takes this long; one for nothing as long as it may.
    wait_ns: Cell<u64>,
    pub(crate) waits: Cell<u32>,
    /// What happens elsewhere during a wait without end.
    pub(crate) in_wait: RefCell<Option<Box<dyn FnMut()>>>,
}

struct Stub(Rc<Script>, Rc<Pool>);

impl Driver for Stub {
    fn name(&self) -> Name {
        Name::Sim
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
    fn attempt_receive(&mut self, _: Target) -> Option<std::result::Result<Lease, i32>> {
        None
    }
    fn submit(&mut self, token: Token, _: &Op<'_>) {
        self.0.submitted.borrow_mut().push(token);
    }
    fn cancel(&mut self, _: Token, _: Kind, _: Target) -> Cancelled {
        Cancelled::Asked
    }
    fn wait(&mut self, until: Until, out: &mut Vec<Completion>) -> io::Result<()> {
        let told = self.0.submitted.borrow_mut().pop().map(|token| Completion {
            token,
            news: match self.0.says_ready.get() {
                true => News::Ready,
                false => News::Last(Outcome::of(-libc::ECANCELED)),
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
    fn abandon(self: Box<Self>) {}
}

/// A driver, and what it is told.
pub(crate) fn stub() -> (Box<dyn Driver>, Rc<Script>) {
    let script = Rc::new(Script::default());
    (Box::new(Stub(Rc::clone(&script), Pool::new(2, 64).unwrap())), script)
}

fn io() -> (Io, Rc<Script>) {
    let (driver, script) = stub();
    (Io::new(driver), script)
}

fn caller() -> Caller<'static> {
    Caller::anybody(Waker::noop())
}

#[test]
fn a_shutdown_has_all_its_patience_however_long_ago_the_last_turn_was() {
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
fn a_listener_that_fails_for_good_says_so_and_one_lost_connection_is_passed_over() {
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
fn a_parked_listener_that_is_polled_again_and_again_parks_once_and_not_for_longer() {
    let (mut io, script) = io();
    let on = io.open(Descriptor::Sim(0));
    script.attempt.set(Some(-libc::EMFILE));
    for _ in 0..50 {
        assert!(io.poll_accept(on.index, &caller()).is_pending());
        script.now.set(script.now.get() + 100_000_000);
        io.read_clock();
    }
    assert_eq!(io.parked.len(), 1);
    assert_eq!(io.deadline(), Some(Moment(PARKED_FOR.as_nanos() as u64)));
}

#[test]
fn who_waits_for_a_close_waits_once_however_often_he_asks() {
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

/// A driver that waits for readiness in the kernel may be told to cancel what has just become ready; that may be for
/// nothing, and there is nobody to ask a second time.
#[test]
fn a_cancel_that_meets_a_readiness_ends_what_finds_nothing_to_do() {
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

/// Progress has 32 bits. What is more is refused before anything is sent; a part of it may be sent.
#[test]
fn four_gigabytes_at_once_are_refused_and_a_little_less_all_go() {
    let (mut io, script) = io();
    let on = io.open(Descriptor::Sim(0));
    script.attempt.set(Some(i32::MAX));
    // Never touched, so it takes no memory; but a kernel that has less may not promise so much.
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
    let mut sending = Sending::new(Memory::Buf(Buf::Vec(bytes)));
    let polled = io.poll_send(on.index, &mut sending, true, &caller());
    assert!(matches!(polled, Poll::Ready(Ok(u32::MAX))));
}
