//! Wait for readiness, then attempt: what epoll, poll and select have in common.
//!
//! Each direction of a descriptor has a ready bit. An event sets it. EAGAIN clears it, and so does a short
//! receive: it means that the socket is empty, so another attempt would be a wasted system call (measured:
//! 7 % of an echo). A short receive does not mean that where the kernel ends one early ([`BEHIND`]): at the
//! end of the stream, at urgent data (tcp(7)), and on a Unix socket after a byte that carried descriptors and
//! at urgent data (unix(7)).
//!
//! With the bit clear, an operation parks without an attempt. Sends try first, since a socket is almost
//! always writable. So does the first receive of an accepted connection as long as that pays ([`Luck`]): a
//! connection with one request is then answered without a wait.
//!
//! epoll reports a change once, after one registration for everything. poll and select report the state at
//! each wait, so they are asked only for directions on which an operation waits and that are not known to be
//! ready ([`Poller::TELLS_ONCE`]). Reported input is nearly always drained before the next wait, and then
//! nothing changes. What was not drained is taken out before that wait ([`Readiness::review`]), or the wait
//! would end at once.
//!
//! [`Driver::wait`] only says that an attempt may succeed. The transfer happens when the task asks, through
//! one hot buffer. So a cancelled operation never had an effect, and nothing is lost.

use super::{Cancelled, Driver, DriverName, Settings};
use crate::clock::{Clock, Until};
use crate::counters::Counters;
use crate::descriptor::NONE;
use crate::op::{Answer, Call, Completion, Kind, News, Op, Outcome, Span, Target, Token};
use crate::pool::{Lease, Pool};
use crate::sys::attempt;
use crate::sys::call;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// An event that a poller reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    /// Index and generation of the entry in the table of descriptors.
    pub(crate) index: u32,
    pub(crate) generation: u32,
    /// [`IN`], [`OUT`], [`BEHIND`].
    pub(crate) ready: u8,
}

/// A receive or an accept would not wait.
pub(crate) const IN: u8 = 1;
/// A send would not wait, or a connect is over.
pub(crate) const OUT: u8 = 2;
/// From now on a short receive does not mean an empty socket: the peer has sent its end or urgent data, or
/// the connection is broken; or it is a Unix socket ([`Driver::stops_short`]).
pub(crate) const BEHIND: u8 = 4;
/// [`IN`] is a guess: an internal bit that no poller reports.
const GUESSED: u8 = 8;

/// A way of waiting for many descriptors. It knows descriptors, not operations.
pub(crate) trait Poller {
    const NAME: DriverName;

    /// A change is reported once, and an interest stays registered (edge-triggered). Otherwise readiness is
    /// reported at each wait as long as it lasts.
    const TELLS_ONCE: bool;

    /// Descriptors have numbers below this, or cannot be watched.
    const NUMBERS: i32 = i32::MAX;

    /// Asks for these directions ([`IN`], [`OUT`]) of a descriptor: more than `so_far`, which may be none.
    fn ask(&mut self, on: Target, so_far: u8, directions: u8, counters: &mut Counters) -> io::Result<()>;

    /// Reduces the interest in the descriptor at `index` to these directions; with none, removes it. Never
    /// called where changes are reported once.
    fn reduce_interest(&mut self, index: u32, directions: u8);

    /// Removes a descriptor, which stays open. It was asked for.
    fn forget(&mut self, on: Target, counters: &mut Counters);

    /// Waits, and appends what is ready. The alarm ends the wait and is not reported.
    fn wait(&mut self, until: Until, counters: &mut Counters, out: &mut Vec<Event>) -> io::Result<()>;

    /// Returns the descriptor by which another thread ends a wait.
    fn alarm(&self) -> &Arc<OwnedFd>;
}

/// The state of one descriptor.
#[derive(Clone, Copy, Debug)]
struct Watch {
    generation: u32,
    ready: u8,
    /// Directions the poller is asked for.
    asked: u8,
    /// `connect(2)` has begun.
    connecting: bool,
    /// The operation parked on input, and the one parked on output.
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
    /// It stays parked when it is reported.
    standing: bool,
}

impl Parked {
    const EMPTY: Parked = Parked { index: NONE, generation: 0, standing: false };

    /// Takes the parked operation, if there is one.
    fn take(&mut self) -> Option<Token> {
        let Parked { index, generation, .. } = std::mem::replace(self, Parked::EMPTY);
        (index != NONE).then_some(Token { index, generation })
    }

    /// Returns the operation to report to, if one is parked.
    #[inline]
    fn tell(&mut self) -> Option<Token> {
        if self.index == NONE {
            return None;
        }
        let token = Token { index: self.index, generation: self.generation };
        if !self.standing {
            *self = Parked::EMPTY;
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
        reader: Parked::EMPTY,
        writer: Parked::EMPTY,
    };

    /// Returns the operation parked on this direction.
    #[inline]
    fn parked(&mut self, direction: u8) -> &mut Parked {
        if direction == IN { &mut self.reader } else { &mut self.writer }
    }

    /// Directions with a parked operation that are not known to be ready.
    #[inline]
    fn open_questions(&self) -> u8 {
        let reader = if self.reader.index == NONE { 0 } else { IN };
        let writer = if self.writer.index == NONE { 0 } else { OUT };
        (reader | writer) & !self.ready
    }
}

/// Decides whether to attempt a receive on an accepted connection before an event, from how often earlier
/// attempts found data. On a busy server most have.
#[derive(Clone, Copy, Debug)]
struct Luck {
    /// Share of recent tries that brought something, in 255ths.
    share: u8,
    /// Connections since the last that was tried.
    passed: u8,
}

impl Luck {
    /// From this share on every connection is tried: a failed attempt costs less than half of a wait.
    const ENOUGH: u8 = 96;
    /// Below that share one connection in this many is tried.
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

    /// Learns from the result of a receive, if it was tried on a guess.
    #[inline]
    fn note_receive(&mut self, watch: &mut Watch, result: i32) {
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
    /// Operations that could not be parked; reported at the next wait.
    failed: Vec<Completion>,
    /// An accept has returned too high a number: from then on each first checks whether a lower one is free.
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
    fn receive(&mut self, on: Target, bulk: bool) -> Option<Result<Lease, i32>> {
        let watch = watch_of(&mut self.watches, on);
        if watch.ready & IN == 0 {
            return None;
        }
        if bulk {
            return self.receive_bulk(on);
        }
        let pool = &self.pool;
        // At most half are leased (`Pool::lease`), and this uses one at a time.
        let id = pool.take()?;
        let buffer_bytes = pool.buffer_bytes();
        let memory = Span { start: pool.buffer(id).as_ptr(), bytes: buffer_bytes };
        // SAFETY: the buffer was taken from the pool, so no other code uses it, and it has that size.
        let result = unsafe { attempt::receive(on.number, memory, &mut self.counters) };
        self.luck.note_receive(watch, result);
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

    /// Receives as [`receive`](Self::receive) does, into a large buffer.
    fn receive_bulk(&mut self, on: Target) -> Option<Result<Lease, i32>> {
        let mut large = self.pool.take_large();
        let received = self.receive_into(on, large.span());
        match received.map(|outcome| outcome.result) {
            Some(bytes) if bytes > 0 => {
                // SAFETY: the receive has just written so many bytes where the buffer begins.
                Some(Ok(unsafe { self.pool.lease_large(large, bytes as usize) }))
            }
            other => {
                self.pool.put_large(large);
                Some(if other? < 0 { Err(other?) } else { Ok(Lease::nothing()) })
            }
        }
    }

    fn receive_into(&mut self, on: Target, memory: Span) -> Option<Outcome> {
        let watch = self.watch(on);
        if watch.ready & IN == 0 {
            return None;
        }
        let may_stop_short = watch.ready & BEHIND != 0;
        // SAFETY: the caller owns an attempt's memory and lends it for the call (`Op`, `op_of`).
        let result = unsafe { attempt::receive(on.number, memory, &mut self.counters) };
        let watch = watch_of(&mut self.watches, on);
        self.luck.note_receive(watch, result);
        let drained = !may_stop_short && result >= 0 && (result as usize) < memory.bytes;
        self.handle_result(on, IN, result, drained).map(Outcome::of)
    }

    /// Receives a datagram. Its length does not tell whether there is another; only EAGAIN does.
    fn receive_message(&mut self, on: Target, message: *mut libc::msghdr) -> Option<Outcome> {
        if self.watch(on).ready & IN == 0 {
            return None;
        }
        // SAFETY: the caller owns an attempt's memory and lends it for the call (`Op`, `op_of`).
        let result = unsafe { attempt::receive_message(on.number, message, &mut self.counters) };
        self.handle_result(on, IN, result, false).map(Outcome::of)
    }

    fn accept(&mut self, on: Target) -> Option<Outcome> {
        if self.watch(on).ready & IN == 0 {
            return None;
        }
        if self.may_be_full && attempt::lowest_free(on.number, &mut self.counters) >= P::NUMBERS {
            return Some(Outcome::of(-libc::EMFILE));
        }
        let result = attempt::accept(on.number, &mut self.counters);
        if result >= P::NUMBERS {
            return Some(Outcome::of(self.turn_away(result)));
        }
        self.handle_result(on, IN, result, false).map(Outcome::of)
    }

    /// Closes an accepted socket with a number that select cannot watch. The first is an error (ERANGE);
    /// later ones count as EMFILE, so that no connection is taken from the backlog only to be closed.
    #[cold]
    fn turn_away(&mut self, number: i32) -> i32 {
        attempt::close(number, &mut self.counters);
        // Another thread may have opened a descriptor since the check.
        if std::mem::replace(&mut self.may_be_full, true) { -libc::EMFILE } else { -libc::ERANGE }
    }

    #[inline]
    fn send(&mut self, on: Target, bytes: Span) -> Option<i32> {
        if self.watch(on).ready & OUT == 0 {
            return None;
        }
        // SAFETY: the caller owns an attempt's memory and lends it for the call (`Op`, `op_of`).
        let result = unsafe { attempt::send(on.number, bytes, &mut self.counters) };
        if result >= 0 && result as usize == bytes.bytes {
            return Some(result);
        }
        // A short send means a full socket: clear the bit.
        self.handle_result(on, OUT, result, result >= 0)
    }

    fn send_vectored(&mut self, on: Target, message: &libc::msghdr) -> Option<Outcome> {
        if self.watch(on).ready & OUT == 0 {
            return None;
        }
        // SAFETY: as in `send`.
        let result = unsafe { attempt::send_vectored(on.number, message, &mut self.counters) };
        self.handle_result(on, OUT, result, false).map(Outcome::of)
    }

    fn send_file(&mut self, on: Target, file: &File, at: u64, bytes: usize) -> Option<Outcome> {
        if self.watch(on).ready & OUT == 0 {
            return None;
        }
        let result = attempt::send_file(on.number, file, at, bytes, &mut self.counters);
        self.handle_result(on, OUT, result, false).map(Outcome::of)
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
            // After EINTR the connect goes on asynchronously (connect(2)).
            errno if matches!(-errno, libc::EINPROGRESS | libc::EINTR) => {
                let watch = self.watch(on);
                watch.connecting = true;
                watch.ready &= !OUT;
                None
            }
            result => Some(Outcome::of(result)),
        }
    }

    /// Handles the result of an attempt: EAGAIN and `drained` clear the ready bit; EAGAIN becomes `None`.
    fn handle_result(&mut self, on: Target, direction: u8, result: i32, drained: bool) -> Option<i32> {
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

    /// Clears the ready bit of a direction until the poller reports it again.
    #[inline]
    fn drained(&mut self, on: Target, direction: u8) {
        let watch = self.watch(on);
        watch.ready &= !direction;
        if !P::TELLS_ONCE && watch.open_questions() & !watch.asked != 0 {
            self.ask_again(on);
        }
    }

    /// Renews the interest of a descriptor: an operation is parked on a direction the poller is not asked
    /// for.
    fn ask_again(&mut self, on: Target) {
        let watch = watch_of(&mut self.watches, on);
        let asked = watch.asked | watch.open_questions();
        match self.poller.ask(on, watch.asked, asked, &mut self.counters) {
            Ok(()) => watch.asked = asked,
            // The parked operations end with the error.
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

    /// Before a wait: removes the interest in what was reported and is still ready, or has no parked
    /// operation.
    fn review(&mut self) {
        for event in &self.events {
            let Some(watch) = self.watches.get_mut(event.index as usize) else { continue };
            if watch.generation != event.generation {
                continue;
            }
            let asked = watch.asked & watch.open_questions();
            if asked != watch.asked {
                watch.asked = asked;
                self.poller.reduce_interest(event.index, asked);
            }
        }
    }

    /// The descriptor is about to be closed.
    fn forget(&mut self, on: Target) {
        let watch = self.watch(on);
        if !P::TELLS_ONCE && std::mem::take(&mut watch.asked) != 0 {
            self.poller.reduce_interest(on.index, 0);
        }
    }

    /// Checks that the poller can watch this number.
    fn check_number(&self, number: i32) -> io::Result<()> {
        if number < P::NUMBERS { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ERANGE)) }
    }
}

/// Returns the direction on which an operation waits.
#[inline]
fn direction(kind: Kind) -> u8 {
    if kind.is_inward() { IN } else { OUT }
}

/// Returns the completion of an operation that could not be parked.
fn failed(token: Token, errno: i32) -> Completion {
    Completion { token, news: News::Last(Outcome::of(-errno)) }
}

/// Returns the state of a descriptor, reset if the generation is new.
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
    fn name(&self) -> DriverName {
        P::NAME
    }

    fn call(&mut self, call: Call<'_>) -> io::Result<Answer> {
        match call {
            Call::Close { on, .. } => self.forget(on),
            Call::Adopt { on } => self.check_number(on.number)?,
            _ => {}
        }
        let answer = call::perform(call, &mut self.counters)?;
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
            Op::Receive { on } => self.receive(on, false).map(Outcome::from),
            Op::ReceiveBulk { on } => self.receive(on, true).map(Outcome::from),
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
            Op::Readable { on } => (self.watch(on).ready & IN != 0).then(|| Outcome::of(0)),
            // Asked anew: what was reported may be over, since another owner of the file has written.
            Op::Writable { on } => match attempt::is_writable(on.number, &mut self.counters) {
                errno if errno == -libc::EAGAIN => {
                    self.counters.would_block += 1;
                    None
                }
                result => Some(Outcome::of(result)),
            },
            Op::File(_) => None,
        }
    }

    fn accepted(&mut self, on: Target) {
        if self.luck.tries() {
            self.watch(on).ready |= IN | GUESSED;
        }
    }

    fn stops_short(&mut self, on: Target) {
        // Pollers that report the state at each wait need no mark.
        if P::TELLS_ONCE {
            self.watch(on).ready |= BEHIND;
        }
    }

    fn is_drained(&self, on: Target) -> bool {
        let watch = self.watches.get(on.index as usize);
        watch.is_some_and(|watch| watch.generation == on.generation && watch.ready & IN == 0)
    }

    #[inline]
    fn attempt_receive(&mut self, on: Target, bulk: bool) -> Option<Result<Lease, i32>> {
        self.receive(on, bulk)
    }

    fn attempt_send(&mut self, on: Target, bytes: Span) -> Option<i32> {
        self.send(on, bytes)
    }

    fn submit(&mut self, token: Token, op: &Op<'_>) {
        let on = op.target();
        let (direction, standing) = (direction(op.kind()), op.kind().is_standing());
        let watch = watch_of(&mut self.watches, on);
        // An edge-triggered interest is registered for good. A new connection is writable, which would be
        // reported at once and for nothing, so output is registered only when an operation waits for it.
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
        *watch.parked(direction) = Parked::EMPTY;
        if !P::TELLS_ONCE && watch.asked & direction != 0 {
            watch.asked &= !direction;
            self.poller.reduce_interest(on.index, watch.asked);
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

    fn abandon(self: Box<Self>, _: Duration) {
        // Between two system calls the kernel holds no memory of this driver.
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
        // No client sends first: a few are tried, and then one in sixteen.
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
