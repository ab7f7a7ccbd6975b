//! `epoll(7)`: the kernel keeps the interest set and reports each change once (edge-triggered).
//!
//! A descriptor is registered when an operation first has to wait for it: for input only, and for both
//! directions once a send has to wait. It stays registered until it is closed or moves to another runtime.
//! (Events may still arrive for a closed descriptor if another descriptor of the same socket is open.) An
//! event carries the entry's index and generation, so a late one for a reused number is ignored.
//!
//! References: epoll(7), epoll_ctl(2) (EPOLLERR and EPOLLHUP are always reported), epoll_pwait2(2), Linux
//! 5.11.

use super::readiness::{BEHIND, Event, IN, OUT, Poller};
use super::{DriverName, alarm};
use crate::clock::Until;
use crate::counters::Counters;
use crate::op::{Target, Token};
use crate::sys::check;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Event data of the alarm. No table entry has so high an index.
const ALARM: u64 = u64::MAX;

/// The epoll set, and the alarm in it.
pub(crate) struct Epoll {
    set: OwnedFd,
    alarm: Arc<OwnedFd>,
    events: Vec<libc::epoll_event>,
    /// The kernel takes a timeout in nanoseconds.
    has_pwait2: bool,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Epoll> {
        // SAFETY: takes a number; the descriptor is new and no other code has it.
        let set = unsafe { OwnedFd::from_raw_fd(check(libc::epoll_create1(libc::EPOLL_CLOEXEC))?) };
        let alarm = Arc::new(alarm::new()?);
        let events = vec![libc::epoll_event { events: 0, u64: 0 }; crate::COMPLETIONS_PER_TURN];
        let epoll = Epoll { set, alarm, events, has_pwait2: true };
        // Edge-triggered: every write is reported once, and the counter never has to be read.
        epoll.add(epoll.alarm.as_raw_fd(), (libc::EPOLLIN | libc::EPOLLET) as u32, ALARM)?;
        Ok(epoll)
    }

    fn add(&self, fd: i32, events: u32, data: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, events, data)
    }

    fn control(&self, what: libc::c_int, fd: i32, events: u32, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: data };
        // SAFETY: one live event, read during the call only.
        check(unsafe { libc::epoll_ctl(self.set.as_raw_fd(), what, fd, &raw mut event) }).map(|_| ())
    }

    /// Waits once; returns the number of events, at most the length of the buffer.
    fn wait_raw(&mut self, until: Until) -> io::Result<usize> {
        let set = self.set.as_raw_fd();
        let (room, count) = (self.events.as_mut_ptr(), self.events.len() as i32);
        let timeout_ms = match until {
            Until::Now | Until::For(Duration::ZERO) => 0,
            Until::News => -1,
            Until::For(span) if self.has_pwait2 => {
                let span = libc::timespec {
                    tv_sec: span.as_secs().try_into().unwrap_or(i64::MAX),
                    tv_nsec: span.subsec_nanos().into(),
                };
                let no_mask = std::ptr::null::<libc::sigset_t>();
                // SAFETY: `room` holds `count` events, written during the call only; the timespec is read
                // during the call; no signal mask is given. (By number: not every C library has the
                // function.)
                let ready = unsafe {
                    libc::syscall(libc::SYS_epoll_pwait2, set, room, count, &raw const span, no_mask, 0usize)
                };
                match check(ready as i32) {
                    // ENOSYS: an older kernel. EPERM: a seccomp filter that is older than the call. The call
                    // itself returns neither.
                    Err(why) if matches!(why.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                        self.has_pwait2 = false;
                        millis(Duration::new(span.tv_sec as u64, span.tv_nsec as u32))
                    }
                    ready => return ready.map(|ready| ready as usize),
                }
            }
            Until::For(span) => millis(span),
        };
        // SAFETY: as above. (By number, as in `sys::attempt`.)
        let ready = unsafe {
            libc::syscall(libc::SYS_epoll_pwait, set, room, count, timeout_ms, std::ptr::null::<u8>(), 0usize)
        };
        check(ready as i32).map(|ready| ready as usize)
    }
}

/// Returns the time-out in milliseconds, rounded up: waking too early would only mean another wait.
fn millis(span: Duration) -> i32 {
    i32::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
}

impl Poller for Epoll {
    const NAME: DriverName = DriverName::Epoll;
    const TELLS_ONCE: bool = true;

    fn ask(&mut self, on: Target, so_far: u8, directions: u8, counters: &mut Counters) -> io::Result<()> {
        counters.system_calls += 1;
        let room = if directions & OUT != 0 { libc::EPOLLOUT } else { 0 };
        let events = (libc::EPOLLIN | libc::EPOLLPRI | libc::EPOLLRDHUP | libc::EPOLLET | room) as u32;
        let data = Token { index: on.index, generation: on.generation }.to_bits();
        if so_far != 0 {
            // The kernel checks readiness again, so room that exists already is reported (epoll_ctl(2)).
            return self.control(libc::EPOLL_CTL_MOD, on.number, events, data);
        }
        match self.add(on.number, events, data) {
            // The kernel's key is the open file and the number. An earlier descriptor was closed while a
            // duplicate of it stayed open (`dup`, fork), and the socket has now returned under the same
            // number.
            Err(why) if why.raw_os_error() == Some(libc::EEXIST) => {
                counters.system_calls += 1;
                self.control(libc::EPOLL_CTL_MOD, on.number, events, data)
            }
            added => added,
        }
    }

    fn reduce_interest(&mut self, _: u32, _: u8) {
        // The registration stays until the descriptor is closed.
    }

    fn forget(&mut self, on: Target, counters: &mut Counters) {
        counters.system_calls += 1;
        // The descriptor is in the set, and the kernel needs no memory to remove it, so this cannot fail.
        let forgotten = self.control(libc::EPOLL_CTL_DEL, on.number, 0, 0);
        debug_assert!(forgotten.is_ok(), "{forgotten:?}");
    }

    fn wait(&mut self, until: Until, counters: &mut Counters, out: &mut Vec<Event>) -> io::Result<()> {
        counters.system_calls += 1;
        let ready = match self.wait_raw(until) {
            Err(why) if why.kind() == io::ErrorKind::Interrupted => 0,
            ready => ready?,
        };
        for event in self.events.iter().take(ready) {
            // Copied out: the struct is packed, so its fields cannot be borrowed.
            let (happened, data) = (event.events as i32, event.u64);
            if data == ALARM {
                continue;
            }
            let broken = happened & (libc::EPOLLERR | libc::EPOLLHUP) != 0;
            let mut ready = 0;
            if broken || happened & (libc::EPOLLIN | libc::EPOLLRDHUP) != 0 {
                ready |= IN;
            }
            if broken || happened & libc::EPOLLOUT != 0 {
                ready |= OUT;
            }
            // Urgent data: a receive ends before it, and the data behind it is not reported again.
            if broken || happened & (libc::EPOLLRDHUP | libc::EPOLLPRI) != 0 {
                ready |= BEHIND;
            }
            let Token { index, generation } = Token::from_bits(data);
            out.push(Event { index, generation, ready });
        }
        Ok(())
    }

    fn alarm(&self) -> &Arc<OwnedFd> {
        &self.alarm
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn wait(epoll: &mut Epoll) -> Vec<u8> {
        let mut events = Vec::new();
        epoll.wait(Until::Now, &mut Counters::default(), &mut events).unwrap();
        events.into_iter().map(|event| event.ready).collect()
    }

    #[test]
    fn room_to_send_is_reported_only_where_it_was_asked_for() {
        let mut epoll = Epoll::new().unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        let on = Target { number: near.as_raw_fd(), index: 3, generation: 7 };
        let counters = &mut Counters::default();
        epoll.ask(on, 0, IN, counters).unwrap();
        assert_eq!(wait(&mut epoll), []);
        far.write_all(b"x").unwrap();
        assert_eq!(wait(&mut epoll), [IN]);
        assert_eq!(wait(&mut epoll), [], "told once");
        epoll.ask(on, IN, IN | OUT, counters).unwrap();
        assert_eq!(wait(&mut epoll), [IN | OUT]);
        assert_eq!(counters.system_calls, 2);
    }
}
