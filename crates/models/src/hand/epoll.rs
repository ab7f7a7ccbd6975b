//! `epoll`: the kernel keeps the set and returns only the ready ones. Both triggers, side by side.
//!
//! *Level*: an event comes at every wait while the condition holds. So interest follows need: to read, or,
//! while answers are kept, to write; each change is a system call.
//!
//! *Edge*: an event comes once when something changes. So interest is registered once, in both directions,
//! and never changed; the program remembers the report ([`Connection::report`]) until a receive is short.
//! Nothing is lost: later data is another change and makes another event.
//!
//! Start at [`run`].
//!
//! # References
//! `epoll(7)`; `epoll_ctl(2)`: EPOLLERR and EPOLLHUP are reported unasked; `epoll_pwait2(2)`, Linux 5.11.
//!
//! [`Connection::report`]: super::connection::Connection::report

use super::accept::ACCEPTS_PER_TURN;
use super::connection::{Readiness, Want};
use super::crowd::Crowd;
use super::slab::Token;
use super::socket::{check, or_none_if_interrupted, timespec};
use super::{Counters, Site, socket};
use crate::{Error, Result, Stop};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// The trigger of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    Level,
    Edge,
}

/// Events taken per wait unless told otherwise: 12 KiB of them, and a bound on how long the listener waits
/// for its turn. What is not taken is first in line at the next wait, so none is passed over for long,
/// however few are taken.
const EVENTS_PER_WAIT: usize = 1024;

/// Event data that are no tokens: a token's index is never that high.
const STOP: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;

const IN: u32 = libc::EPOLLIN as u32;
const OUT: u32 = libc::EPOLLOUT as u32;
const BROKEN: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
const PEER_ENDED: u32 = libc::EPOLLRDHUP as u32;
const EDGE: u32 = libc::EPOLLET as u32;

/// Serves until `stop` is requested.
pub(super) fn run(site: Site, stop: &Stop, trigger: Trigger) -> Result<Counters> {
    let batch = site.batch(EVENTS_PER_WAIT);
    let mut crowd = Crowd::new(site);
    let set = Set::new(&mut crowd.worker.counters)?;
    // These two are level-triggered in both models: one is looked at once, the other taken from in batches.
    set.control(libc::EPOLL_CTL_ADD, stop.as_fd().as_raw_fd(), IN, STOP, &mut crowd.worker.counters)?;
    set.control(libc::EPOLL_CTL_ADD, crowd.listener(), IN, LISTENER, &mut crowd.worker.counters)?;
    let mut server = Epoll { crowd, set, trigger, listening: true, unfinished: Vec::new() };
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; batch];
    while server.turn(&mut events)? {}
    let mut counters = server.crowd.finish();
    socket::close(server.set.descriptor, &mut counters);
    Ok(counters)
}

struct Epoll {
    crowd: Crowd,
    set: Set,
    trigger: Trigger,
    /// The listener is armed.
    listening: bool,
    /// Edge only: connections that used up a turn with more to read, and get no further event. Marked 1, so
    /// that each is here once.
    unfinished: Vec<Token>,
}

impl Epoll {
    /// One wait and what follows from it. `false`: stop was requested.
    fn turn(&mut self, events: &mut [libc::epoll_event]) -> Result<bool> {
        self.arm_listener()?;
        let timeout = if self.unfinished.is_empty() { self.crowd.timeout() } else { Some(Duration::ZERO) };
        let ready = self.set.wait(events, timeout, &mut self.crowd.worker.counters)?;
        let unfinished = std::mem::take(&mut self.unfinished);
        let mut newcomers = false;
        for event in events.iter().take(ready) {
            // Copied out: the struct is packed, so its fields cannot be borrowed.
            let (happened, data) = (event.events, event.u64);
            match data {
                STOP => return Ok(false),
                LISTENER => newcomers = true,
                bits => self.event(Token::from_bits(bits), happened)?,
            }
        }
        for token in unfinished {
            if let Some(connection) = self.crowd.get_mut(token) {
                connection.mark = 0;
            }
            if let Some(want) = self.crowd.turn(token) {
                self.settle(token, want)?;
            }
        }
        while let Some((token, want)) = self.crowd.next_due() {
            self.settle(token, want)?;
        }
        if newcomers {
            self.accept()?;
        }
        Ok(true)
    }

    #[inline]
    fn event(&mut self, token: Token, happened: u32) -> Result<()> {
        let broken = happened & BROKEN != 0;
        let readiness = Readiness {
            readable: broken || happened & (IN | PEER_ENDED) != 0,
            writable: broken || happened & OUT != 0,
            hung_up: self.trigger == Trigger::Edge && (broken || happened & PEER_ENDED != 0),
        };
        let Some(want) = self.crowd.ready(token, readiness) else { return Ok(()) };
        // Level: with an answer waiting for its time nothing is armed, and only a broken connection is still
        // reported, at every wait. There is no peer left to answer.
        let gone = want == Want::Delay && broken && self.trigger == Trigger::Level;
        self.settle(token, if gone { Want::Close } else { want })
    }

    /// Arranges to be told what the connection wants from now on.
    #[inline]
    fn settle(&mut self, token: Token, want: Want) -> Result<()> {
        match (want, self.trigger) {
            (Want::Close, _) => self.crowd.close(token),
            (Want::Turn, Trigger::Edge) => {
                if let Some(connection) = self.crowd.get_mut(token).filter(|connection| connection.mark == 0)
                {
                    connection.mark = 1;
                    self.unfinished.push(token);
                }
            }
            (_, Trigger::Edge) => {}
            (Want::Read | Want::Turn, Trigger::Level) => self.arm(token, IN)?,
            (Want::Write, Trigger::Level) => self.arm(token, OUT)?,
            (Want::Delay, Trigger::Level) => self.arm(token, 0)?,
        }
        Ok(())
    }

    /// Level only: changes the interest, if it is another. The mark remembers it.
    fn arm(&mut self, token: Token, interest: u32) -> Result<()> {
        let Some(connection) = self.crowd.get_mut(token).filter(|connection| connection.mark != interest)
        else {
            return Ok(());
        };
        connection.mark = interest;
        let fd = connection.number();
        self.set.control(libc::EPOLL_CTL_MOD, fd, interest, token.to_bits(), &mut self.crowd.worker.counters)
    }

    /// Stops waiting for newcomers while there is no room for them, and starts again.
    #[inline]
    fn arm_listener(&mut self) -> Result<()> {
        let accepting = self.crowd.is_accepting();
        if accepting == self.listening {
            return Ok(());
        }
        self.listening = accepting;
        let interest = if accepting { IN } else { 0 };
        let listener = self.crowd.listener();
        self.set.control(libc::EPOLL_CTL_MOD, listener, interest, LISTENER, &mut self.crowd.worker.counters)
    }

    fn accept(&mut self) -> Result<()> {
        let interest = match self.trigger {
            Trigger::Level => IN,
            Trigger::Edge => IN | OUT | PEER_ENDED | EDGE,
        };
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(socket) = self.crowd.accept()? else { break };
            let fd = socket.as_raw_fd();
            let token = self.crowd.admit(socket);
            let counters = &mut self.crowd.worker.counters;
            if self.set.control(libc::EPOLL_CTL_ADD, fd, interest, token.to_bits(), counters).is_err() {
                // Out of kernel memory or past fs.epoll.max_user_watches: this connection cannot be served,
                // the others can.
                counters.accepted -= 1;
                counters.refused += 1;
                self.crowd.close(token);
            } else if self.trigger == Trigger::Level
                && let Some(connection) = self.crowd.get_mut(token)
            {
                connection.mark = IN;
            }
        }
        Ok(())
    }
}

/// The set in the kernel. A closed descriptor leaves it by itself: none of ours has a duplicate.
struct Set {
    descriptor: OwnedFd,
}

impl Set {
    fn new(counters: &mut Counters) -> Result<Self> {
        counters.syscalls += 1;
        // SAFETY: epoll_create1(2) takes numbers only.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
            .map_err(|why| Error::new("epoll_create1", why))?;
        // SAFETY: epoll_create1 succeeded: the number is open, new, and known to no other code.
        Ok(Set { descriptor: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    fn control(
        &self,
        operation: libc::c_int,
        fd: RawFd,
        interest: u32,
        data: u64,
        counters: &mut Counters,
    ) -> Result<()> {
        counters.syscalls += 1;
        let mut event = libc::epoll_event { events: interest, u64: data };
        // SAFETY: the event lives in this frame and is only read, during the call; a wrong `fd` is an error,
        // never a hazard.
        check(unsafe { libc::epoll_ctl(self.descriptor.as_raw_fd(), operation, fd, &raw mut event) })
            .map_err(|why| Error::new("epoll_ctl", why).on(format!("descriptor {fd}")))?;
        Ok(())
    }

    /// Fills the front of `events` and tells how many. `None` waits for ever; a signal counts as no event.
    #[inline]
    fn wait(
        &self,
        events: &mut [libc::epoll_event],
        timeout: Option<Duration>,
        counters: &mut Counters,
    ) -> Result<usize> {
        counters.syscalls += 1;
        let set = self.descriptor.as_raw_fd();
        let (first, room) = (events.as_mut_ptr(), events.len() as libc::c_int);
        // epoll_wait counts in milliseconds, which is exact for "never" and "now" only; in between, a delay
        // of 0.4 ms would become a spin or be doubled, so there the call with nanoseconds is used.
        let plain_ms = match timeout {
            None => Some(-1),
            Some(Duration::ZERO) => Some(0),
            Some(_) => None,
        };
        let ready = if let Some(ms) = plain_ms {
            // SAFETY: the kernel writes at most `room` events at `first`, which `events` borrows exclusively,
            // and only during the call.
            unsafe { libc::epoll_wait(set, first, room, ms) }
        } else {
            let until = timespec(timeout.unwrap_or_default());
            let no_mask = std::ptr::null::<libc::sigset_t>();
            // SAFETY: as above; the timespec lives in this frame and is only read; no mask, so its size is
            // unused.
            unsafe {
                libc::syscall(libc::SYS_epoll_pwait2, set, first, room, &raw const until, no_mask, 0usize)
                    as libc::c_int
            }
        };
        or_none_if_interrupted(check(ready)).map_err(|why| match why.kind() {
            io::ErrorKind::Unsupported => Error::new("epoll_pwait2", why).hint("delays need Linux 5.11"),
            _ => Error::new("epoll_wait", why),
        })
    }
}
