//! Wait for readiness, then attempt: what epoll, poll and select have in common.
//!
//! A direction of a descriptor has one ready bit. It is set by an event, and cleared by EAGAIN or by a receive
//! that came back short: then the socket is empty, and asking again would be a system call for nothing (measured: 7 % of
//! an echo). But not where the kernel ends a receive before that, which is known of the socket then ([`BEHIND`]): at
//! the end of the stream, at urgent data (tcp(7)), and on a Unix socket behind every byte that descriptors came with
//! and at its own urgent data (unix(7)). Clear means *park without trying*. Sends try first: a socket is
//! almost always writable. So does the first receive of a connection just accepted, as long as that pays ([`Luck`]):
//! whoever asks one thing only is then answered without ever being waited for.
//!
//! epoll tells a change once, to whoever registered once for everything. poll and select tell what *is*, at each
//! wait, so they are asked for exactly the directions that somebody waits for and that are not known to be ready
//! ([`Poller::TELLS_ONCE`]). What was told is nearly always drained before the next wait, and then nothing has to be
//! changed; whatever was not is taken out before that wait ([`Readiness::review`]), or it would end at once.
//!
//! Nothing is done in the name of a waiting operation: [`Driver::wait`] only says that an attempt may succeed, and
//! the transfer happens when the task asks, through one hot buffer. So a cancelled operation never had an effect,
//! and nothing can be lost.

use super::{Cancelled, Driver, Name, Settings};
use crate::clock::{Clock, Until};
use crate::counters::Counters;
use crate::descriptor::NONE;
use crate::op::{Answer, Call, Completion, Kind, News, Op, Outcome, Span, Target, Token};
use crate::pool::{Lease, Pool};
use crate::sys::attempt;
use crate::sys::call::{self, Blocking};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

/// What a poller tells of a descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    /// Of the entry in the table of descriptors.
    pub(crate) index: u32,
    pub(crate) generation: u32,
    /// [`IN`], [`OUT`], [`BEHIND`].
    pub(crate) ready: u8,
}

/// A receive or an accept would not wait.
pub(crate) const IN: u8 = 1;
/// A send would not wait, or a connect is over.
pub(crate) const OUT: u8 = 2;
/// A short receive does not mean an empty socket, from now on: the peer has sent its end or urgent data, or the connection
/// is broken, and that may be what comes next; or it is a Unix socket ([`Driver::stops_short`]).
pub(crate) const BEHIND: u8 = 4;
/// Of what a driver knows: that [`IN`] is a guess.
const GUESSED: u8 = 8;

/// A way of waiting for many descriptors. It knows descriptors, not operations.
pub(crate) trait Poller {
    const NAME: Name;

    /// A change is told once, and what is asked for stays asked for (edge-triggered). Otherwise what is asked for is
    /// told at each wait for as long as it is so.
    const TELLS_ONCE: bool;

    /// Descriptors have numbers below this, or cannot be watched.
    const NUMBERS: i32 = i32::MAX;

    /// Asks for these directions ([`IN`], [`OUT`]) of a descriptor: more than `so_far`, which may be none.
    fn ask(&mut self, on: Target, so_far: u8, directions: u8, counters: &mut Counters) -> io::Result<()>;

    /// Asks for no more than these directions of the descriptor at `index`; none: the poller knows nothing of it any
    /// more. Never called where changes are told once.
    fn narrow(&mut self, index: u32, directions: u8);

    /// Knows nothing of the descriptor any more, which stays open. It was asked for.
    fn forget(&mut self, on: Target, counters: &mut Counters);

    /// Waits, and appends what is ready. The alarm ends the wait and is not told.
    fn wait(&mut self, until: Until, counters: &mut Counters, out: &mut Vec<Event>) -> io::Result<()>;

    /// What another thread writes to.
    fn alarm(&self) -> &Arc<OwnedFd>;
}

/// What the driver knows of one descriptor.
#[derive(Clone, Copy, Debug)]
struct Watch {
    generation: u32,
    ready: u8,
    /// Directions the poller is asked for.
    asked: u8,
    /// `connect(2)` has begun.
    connecting: bool,
    /// Whose turn it is when there is something to receive, and when there is room to send.
    reader: Parked,
    writer: Parked,
}

// Every descriptor has one, also while it is idle.
const _: () = assert!(size_of::<Watch>() == 32);

/// An operation that waits for readiness.
#[derive(Clone, Copy, Debug)]
struct Parked {
    index: u32,
    generation: u32,
    /// It stays when it is told.
    standing: bool,
}

impl Parked {
    const NOBODY: Parked = Parked { index: NONE, generation: 0, standing: false };

    /// Who it was, if anybody; nobody from now on.
    fn take(&mut self) -> Option<Token> {
        let Parked { index, generation, .. } = std::mem::replace(self, Parked::NOBODY);
        (index != NONE).then_some(Token { index, generation })
    }

    /// Whom to tell, if anybody.
    #[inline]
    fn tell(&mut self) -> Option<Token> {
        if self.index == NONE {
            return None;
        }
        let token = Token { index: self.index, generation: self.generation };
        if !self.standing {
            *self = Parked::NOBODY;
        }
        Some(token)
    }
}

impl Watch {
    const FRESH: Watch = Watch {
        generation: u32::MAX,
        ready: OUT,
        asked: 0,
        connecting: false,
        reader: Parked::NOBODY,
        writer: Parked::NOBODY,
    };

    /// Whose turn it is in this direction.
    #[inline]
    fn parked(&mut self, direction: u8) -> &mut Parked {
        if direction == IN { &mut self.reader } else { &mut self.writer }
    }

    /// The directions somebody waits for, without knowing that they are ready.
    #[inline]
    fn open_questions(&self) -> u8 {
        let reader = if self.reader.index == NONE { 0 } else { IN };
        let writer = if self.writer.index == NONE { 0 } else { OUT };
        (reader | writer) & !self.ready
    }
}

/// Whether a connection just accepted is worth a receive before anybody waits for it: whether those before it had sent
/// something by then. On a busy server most have.
#[derive(Clone, Copy, Debug)]
struct Luck {
    /// How often it was so of late: none of 255, to all.
    share: u8,
    /// Connections since the last that was tried.
    passed: u8,
}

impl Luck {
    /// From this share on each is tried: an attempt for nothing costs less than half of what a wait does.
    const ENOUGH: u8 = 96;
    /// Below it one in so many is.
    const ONE_IN: u8 = 16;

    fn new() -> Luck {
        Luck { share: 128, passed: 0 }
    }

    fn tries(&mut self) -> bool {
        self.passed += 1;
        let tries = self.share >= Luck::ENOUGH || self.passed == Luck::ONE_IN;
        if tries {
            self.passed = 0;
        }
        tries
    }

    /// What a receive from this descriptor came to: if it was the one tried on a guess, that is learnt from.
    #[inline]
    fn hears(&mut self, watch: &mut Watch, result: i32) {
        if watch.ready & GUESSED != 0 {
            watch.ready &= !GUESSED;
            self.learn(result != -libc::EAGAIN);
        }
    }

    fn learn(&mut self, had_sent: bool) {
        if had_sent {
            self.share += (u8::MAX - self.share) / 8;
        } else {
            self.share -= self.share.div_ceil(8);
        }
    }
}

/// The driver over any poller.
pub(crate) struct Readiness<P> {
    poller: P,
    /// By index in the table of descriptors.
    watches: Vec<Watch>,
    events: Vec<Event>,
    /// Operations that could not even be parked, told at the next wait.
    failed: Vec<Completion>,
    /// An accept has brought a number that was too high: from then on each looks first whether a lower one is free.
    may_be_full: bool,
    luck: Luck,
    pool: Rc<Pool>,
    clock: Clock,
    counters: Counters,
}

impl<P: Poller> Readiness<P> {
    pub(crate) fn new(poller: P, settings: &Settings) -> io::Result<Readiness<P>> {
        Ok(Readiness {
            poller,
            watches: Vec::new(),
            events: Vec::with_capacity(crate::COMPLETIONS_PER_TURN),
            failed: Vec::new(),
            may_be_full: false,
            luck: Luck::new(),
            pool: Pool::new(settings.buffers, settings.buffer_bytes)?,
            clock: Clock::monotonic(),
            counters: Counters::default(),
        })
    }

    #[inline]
    fn watch(&mut self, on: Target) -> &mut Watch {
        watch_of(&mut self.watches, on)
    }

    /// Receives into a buffer of the pool, which becomes a lease.
    #[inline]
    fn receive(&mut self, on: Target) -> Option<Result<Lease, i32>> {
        let watch = watch_of(&mut self.watches, on);
        if watch.ready & IN == 0 {
            return None;
        }
        let pool = &self.pool;
        // At most half are out (`Pool::lease`), and we use one at a time.
        let id = pool.take()?;
        let buffer_bytes = pool.buffer_bytes();
        let memory = Span { start: pool.buffer(id).as_ptr(), bytes: buffer_bytes };
        // SAFETY: the buffer was taken from the pool: nobody else reaches it, and it is of that size.
        let result = unsafe { attempt::receive(on.number, memory, &mut self.counters) };
        self.luck.hears(watch, result);
        if result <= 0 {
            pool.put(id);
            if result == -libc::EAGAIN {
                self.counters.would_block += 1;
                self.drained(on, IN);
                return None;
            }
            return Some(if result < 0 { Err(result) } else { Ok(Lease::nothing()) });
        }
        if (result as usize) < buffer_bytes && watch.ready & BEHIND == 0 {
            watch.ready &= !IN;
            if !P::TELLS_ONCE && watch.open_questions() & !watch.asked != 0 {
                self.ask_again(on);
            }
        }
        // SAFETY: taken above, written only by the call that has returned.
        Some(Ok(unsafe { self.pool.lease(id, result as usize) }))
    }

    fn receive_into(&mut self, on: Target, memory: Span) -> Option<Outcome> {
        let watch = self.watch(on);
        if watch.ready & IN == 0 {
            return None;
        }
        let may_stop_short = watch.ready & BEHIND != 0;
        // SAFETY: an attempt's memory is the caller's, who lends it for the call (`Op`, `op_of`).
        let result = unsafe { attempt::receive(on.number, memory, &mut self.counters) };
        let watch = watch_of(&mut self.watches, on);
        self.luck.hears(watch, result);
        let drained = !may_stop_short && result >= 0 && (result as usize) < memory.bytes;
        self.settle(on, IN, result, drained).map(Outcome::of)
    }

    /// How long a datagram was says nothing about whether there is another: only EAGAIN does.
    fn receive_message(&mut self, on: Target, message: *mut libc::msghdr) -> Option<Outcome> {
        if self.watch(on).ready & IN == 0 {
            return None;
        }
        // SAFETY: an attempt's memory is the caller's, who lends it for the call (`Op`, `op_of`).
        let result = unsafe { attempt::receive_message(on.number, message, &mut self.counters) };
        self.settle(on, IN, result, false).map(Outcome::of)
    }

    fn accept(&mut self, on: Target) -> Option<Outcome> {
        if self.watch(on).ready & IN == 0 {
            return None;
        }
        if self.may_be_full && attempt::lowest_free(on.number, &mut self.counters) >= P::NUMBERS {
            return Some(Outcome::of(-libc::EMFILE));
        }
        let result = attempt::accept(on.number, Blocking::No.socket_flags(), &mut self.counters);
        if result >= P::NUMBERS {
            return Some(Outcome::of(self.turn_away(result)));
        }
        self.settle(on, IN, result, false).map(Outcome::of)
    }

    /// Closes an accepted socket whose number is too high. Said once; from then on it is as though the process had no
    /// descriptors left: nobody is taken from the backlog only to be turned away.
    #[cold]
    fn turn_away(&mut self, number: i32) -> i32 {
        attempt::close(number, &mut self.counters);
        // Another thread may have opened something since we looked.
        if std::mem::replace(&mut self.may_be_full, true) { -libc::EMFILE } else { -libc::ERANGE }
    }

    #[inline]
    fn send(&mut self, on: Target, bytes: Span) -> Option<i32> {
        if self.watch(on).ready & OUT == 0 {
            return None;
        }
        // SAFETY: an attempt's memory is the caller's, who lends it for the call (`Op`, `op_of`).
        let result = unsafe { attempt::send(on.number, bytes, &mut self.counters) };
        if result >= 0 && result as usize == bytes.bytes {
            return Some(result);
        }
        // A short send means a full socket: waiting is all that is left.
        self.settle(on, OUT, result, result >= 0)
    }

    fn send_vectored(&mut self, on: Target, message: &libc::msghdr) -> Option<Outcome> {
        if self.watch(on).ready & OUT == 0 {
            return None;
        }
        // SAFETY: as in `send`.
        let result = unsafe { attempt::send_vectored(on.number, message, &mut self.counters) };
        self.settle(on, OUT, result, false).map(Outcome::of)
    }

    fn send_file(&mut self, on: Target, file: &File, at: u64, bytes: usize) -> Option<Outcome> {
        if self.watch(on).ready & OUT == 0 {
            return None;
        }
        let result = attempt::send_file(on.number, file, at, bytes, &mut self.counters);
        self.settle(on, OUT, result, false).map(Outcome::of)
    }

    fn connect(&mut self, on: Target, address: &socket2::SockAddr) -> Option<Outcome> {
        let watch = self.watch(on);
        if watch.connecting {
            if watch.ready & OUT == 0 {
                return None;
            }
            watch.connecting = false;
            return Some(Outcome::of(attempt::take_error(on.number, &mut self.counters)));
        }
        match attempt::connect(on.number, address, &mut self.counters) {
            // Interrupted, it goes on by itself (connect(2)).
            errno if matches!(-errno, libc::EINPROGRESS | libc::EINTR) => {
                let watch = self.watch(on);
                watch.connecting = true;
                watch.ready &= !OUT;
                None
            }
            result => Some(Outcome::of(result)),
        }
    }

    /// Clears the ready bit if the answer says so, and makes EAGAIN "not now".
    fn settle(&mut self, on: Target, direction: u8, result: i32, drained: bool) -> Option<i32> {
        if result == -libc::EAGAIN {
            self.counters.would_block += 1;
            self.drained(on, direction);
            return None;
        }
        if drained {
            self.drained(on, direction);
        }
        Some(result)
    }

    /// There is nothing more in this direction until the poller says so.
    #[inline]
    fn drained(&mut self, on: Target, direction: u8) {
        let watch = self.watch(on);
        watch.ready &= !direction;
        if !P::TELLS_ONCE && watch.open_questions() & !watch.asked != 0 {
            self.ask_again(on);
        }
    }

    /// Somebody waits, and what he waits for was no longer asked for.
    fn ask_again(&mut self, on: Target) {
        let watch = watch_of(&mut self.watches, on);
        let asked = watch.asked | watch.open_questions();
        match self.poller.ask(on, watch.asked, asked, &mut self.counters) {
            Ok(()) => watch.asked = asked,
            // Then whoever waits hears of it.
            Err(why) => {
                let errno = why.raw_os_error().unwrap_or(libc::EIO);
                let refused = asked & !watch.asked;
                for direction in [IN, OUT].into_iter().filter(|direction| refused & direction != 0) {
                    let token = watch.parked(direction).take();
                    self.failed.extend(token.map(|token| failed(token, errno)));
                }
            }
        }
    }

    /// Before a wait: what was told at the last one and is still so need not be told again, nor what nobody waits for.
    fn review(&mut self) {
        for event in &self.events {
            let Some(watch) = self.watches.get_mut(event.index as usize) else { continue };
            if watch.generation != event.generation {
                continue;
            }
            let asked = watch.asked & watch.open_questions();
            if asked != watch.asked {
                watch.asked = asked;
                self.poller.narrow(event.index, asked);
            }
        }
    }

    /// The descriptor is about to be closed.
    fn forget(&mut self, on: Target) {
        let watch = self.watch(on);
        if !P::TELLS_ONCE && std::mem::take(&mut watch.asked) != 0 {
            self.poller.narrow(on.index, 0);
        }
    }

    /// An error of its own for a descriptor whose number is too high.
    fn check_number(&self, number: i32) -> io::Result<()> {
        if number < P::NUMBERS { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ERANGE)) }
    }
}

/// Which way an operation waits.
#[inline]
fn direction(kind: Kind) -> u8 {
    if kind.is_inward() { IN } else { OUT }
}

/// The end of an operation that could not be parked.
fn failed(token: Token, errno: i32) -> Completion {
    Completion { token, news: News::Last(Outcome::of(-errno)) }
}

/// The entry of a descriptor, fresh if it is a new one.
#[inline]
fn watch_of(watches: &mut Vec<Watch>, on: Target) -> &mut Watch {
    let index = on.index as usize;
    if index >= watches.len() {
        watches.resize(index + 1, Watch::FRESH);
    }
    let watch = &mut watches[index];
    if watch.generation != on.generation {
        *watch = Watch { generation: on.generation, ..Watch::FRESH };
    }
    watch
}

impl<P: Poller> Driver for Readiness<P> {
    fn name(&self) -> Name {
        P::NAME
    }

    fn call(&mut self, call: Call<'_>) -> io::Result<Answer> {
        match call {
            Call::Close { on, .. } => self.forget(on),
            Call::Adopt { on } => self.check_number(on.number)?,
            _ => {}
        }
        let answer = call::perform(call, Blocking::No, &mut self.counters)?;
        let highest = match &answer {
            Answer::Descriptor(descriptor) => descriptor.number(),
            Answer::Pair(one, other) => one.number().max(other.number()),
            _ => return Ok(answer),
        };
        if let Err(why) = self.check_number(highest) {
            // Dropping it closes it.
            self.counters.system_calls += 1;
            return Err(why);
        }
        Ok(answer)
    }

    fn explain(&self, errno: i32) -> Option<String> {
        (errno == libc::ERANGE && P::NUMBERS < i32::MAX).then(|| {
            format!(
                "{} can watch descriptor numbers below {} only, and no lower one was free: it was closed; open fewer \
                 files, or use poll or epoll",
                P::NAME,
                P::NUMBERS
            )
        })
    }

    fn tries(&self) -> bool {
        true
    }

    fn attempt(&mut self, op: &Op<'_>) -> Option<Outcome> {
        match *op {
            Op::Receive { on } | Op::ReceiveOne { on } => self.receive(on).map(Outcome::from),
            Op::Send { on, bytes, .. } | Op::SendLasting { on, bytes, .. } => {
                self.send(on, bytes).map(Outcome::of)
            }
            Op::Accept { on } => self.accept(on),
            Op::ReceiveInto { on, memory } => self.receive_into(on, memory),
            Op::SendVectored { on, message }
            | Op::SendMessage { on, message }
            | Op::SendUnixMessage { on, message } => self.send_vectored(on, message),
            Op::ReceiveMessage { on, message } => self.receive_message(on, message),
            Op::SendFile { on, file, at, bytes } => self.send_file(on, file, at, bytes),
            Op::Connect { on, address } => self.connect(on, address),
            Op::File(_) => None,
        }
    }

    fn accepted(&mut self, on: Target) {
        if self.luck.tries() {
            self.watch(on).ready |= IN | GUESSED;
        }
    }

    fn stops_short(&mut self, on: Target) {
        // Where what is there is told at each wait, nothing has to be remembered.
        if P::TELLS_ONCE {
            self.watch(on).ready |= BEHIND;
        }
    }

    fn attempt_receive(&mut self, on: Target) -> Option<Result<Lease, i32>> {
        self.receive(on)
    }

    fn attempt_send(&mut self, on: Target, bytes: Span) -> Option<i32> {
        self.send(on, bytes)
    }

    fn submit(&mut self, token: Token, op: &Op<'_>) {
        let on = op.target();
        let (direction, standing) = (direction(op.kind()), op.kind().is_standing());
        let watch = watch_of(&mut self.watches, on);
        // Where changes are told once, what is asked for is asked for good. A new connection would be told at once that
        // there is room to send, for nothing: that is asked only when somebody waits for it.
        let asked = watch.asked | if P::TELLS_ONCE && direction == OUT { IN | OUT } else { direction };
        if watch.asked != asked {
            if let Err(why) = self.poller.ask(on, watch.asked, asked, &mut self.counters) {
                let errno = why.raw_os_error().unwrap_or(libc::EIO);
                self.failed.push(failed(token, errno));
                return;
            }
            watch.asked = asked;
        }
        *watch.parked(direction) = Parked { index: token.index, generation: token.generation, standing };
    }

    fn cancel(&mut self, token: Token, kind: Kind, on: Target) -> Cancelled {
        self.failed.retain(|completion| completion.token != token);
        let watch = watch_of(&mut self.watches, on);
        let direction = direction(kind);
        *watch.parked(direction) = Parked::NOBODY;
        if !P::TELLS_ONCE && watch.asked & direction != 0 {
            watch.asked &= !direction;
            self.poller.narrow(on.index, watch.asked);
        }
        Cancelled::Gone
    }

    fn release(&mut self, on: Target) -> Option<i32> {
        let watch = watch_of(&mut self.watches, on);
        if std::mem::take(&mut watch.asked) != 0 {
            self.poller.forget(on, &mut self.counters);
        }
        None
    }

    fn wait(&mut self, until: Until, out: &mut Vec<Completion>) -> io::Result<()> {
        let until = if self.failed.is_empty() { until } else { Until::Now };
        if !P::TELLS_ONCE {
            self.review();
        }
        self.events.clear();
        self.counters.waits += 1;
        self.poller.wait(until, &mut self.counters, &mut self.events)?;
        out.append(&mut self.failed);
        for event in &self.events {
            let Some(watch) = self.watches.get_mut(event.index as usize) else { continue };
            if watch.generation != event.generation {
                continue;
            }
            watch.ready |= event.ready;
            if event.ready & IN != 0
                && let Some(token) = watch.reader.tell()
            {
                out.push(Completion { token, news: News::Ready });
            }
            if event.ready & OUT != 0
                && let Some(token) = watch.writer.tell()
            {
                out.push(Completion { token, news: News::Ready });
            }
        }
        Ok(())
    }

    fn alarm(&self) -> Option<Arc<OwnedFd>> {
        Some(Arc::clone(self.poller.alarm()))
    }

    fn pool(&self) -> &Rc<Pool> {
        &self.pool
    }

    fn sends_from_pool(&self) -> bool {
        false
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn abandon(self: Box<Self>) {
        // The kernel has nothing of ours between two system calls.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_receives_are_tried_as_long_as_enough_of_them_bring_something() {
        let mut luck = Luck::new();
        let mut tried = |connections: usize, mut has_sent: Box<dyn FnMut() -> bool>| {
            let mut tried = 0;
            for _ in 0..connections {
                if luck.tries() {
                    tried += 1;
                    luck.learn(has_sent());
                }
            }
            tried
        };
        // Nobody speaks first: a few, and then one in sixteen.
        assert!((6..=12).contains(&tried(100, Box::new(|| false))));
        assert_eq!(tried(1600, Box::new(|| false)), 100);
        // All do: soon every one.
        assert!(tried(160, Box::new(|| true)) > 80);
        assert_eq!(tried(1000, Box::new(|| true)), 1000);
        // Every second one is enough.
        let mut odd = false;
        let every_second = move || {
            odd = !odd;
            odd
        };
        assert_eq!(tried(1000, Box::new(every_second)), 1000);
    }
}
