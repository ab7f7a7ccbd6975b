//! `poll(2)`: one array of descriptors, handed to the kernel in full for every wait.
//!
//! The kernel walks all of it, and so do we until we have met as many ready entries as it counted: a wait costs more
//! the more connections wait, busy or idle. In return nothing is registered anywhere, and asking for something is an
//! assignment. Only what is asked for is in the array, which is kept dense: the last entry moves into a gap. (A
//! broken connection is told unasked, so an entry that asks for nothing would end each wait.)
//!
//! References: poll(2); ppoll(2) writes what is left of its timeout.

use super::readiness::{BEHIND, Event, IN, OUT, Poller};
use super::{Name, alarm};
use crate::clock::Until;
use crate::counters::Counters;
use crate::descriptor::NONE;
use crate::op::{Target, Token};
use crate::sys::{check_wait, wait_span};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// Place of the alarm in the array.
const ALARM: usize = 0;
/// The first place of a descriptor.
const FIRST: usize = 1;

/// Entries looked at together: one cache line.
const TOGETHER: usize = 8;

/// The array, and what its entries stand for.
pub(crate) struct PollSet {
    /// What the kernel sees: the alarm, then what is asked for.
    set: Vec<libc::pollfd>,
    /// Whose entry it is: `owners[i]` is that of `set[i]`. The alarm's is nobody.
    owners: Vec<Token>,
    /// Where in the array, by index in the table of descriptors; [`NONE`]: not there.
    places: Vec<u32>,
    /// Where looking begins, and how many entries the kernel has counted that were not told yet: more than a turn takes.
    start: usize,
    untold: usize,
    alarm: Arc<OwnedFd>,
}

impl PollSet {
    pub(crate) fn new() -> io::Result<PollSet> {
        let alarm = Arc::new(alarm::new()?);
        let first = libc::pollfd { fd: alarm.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let nobody = Token { index: NONE, generation: 0 };
        Ok(PollSet {
            set: vec![first],
            owners: vec![nobody],
            places: Vec::new(),
            start: FIRST,
            untold: 0,
            alarm,
        })
    }

    /// Appends what is ready and was not told, a turn's worth of it.
    ///
    /// An entry that has gone meanwhile was counted, and one that took its place may be passed over: it is ready at the
    /// next wait too.
    fn tell(&mut self, out: &mut Vec<Event>) {
        let turn = self.untold.min(crate::COMPLETIONS_PER_TURN);
        let mut left = turn;
        self.start = self.collect(self.start, self.set.len(), &mut left, out);
        self.untold -= turn - left;
        if self.start >= self.set.len() {
            self.untold = 0;
        }
    }

    /// Appends what is ready between two places, at most `left`; tells where it stopped.
    fn collect(&self, from: usize, to: usize, left: &mut usize, out: &mut Vec<Event>) -> usize {
        let mut at = from;
        while at < to && *left > 0 {
            let end = to.min(at + TOGETHER);
            let entries = &self.set[at..end];
            // Without a branch for each: most are idle where there are many.
            if entries.iter().fold(0, |any, entry| any | entry.revents) == 0 {
                at = end;
                continue;
            }
            for (entry, owner) in entries.iter().zip(&self.owners[at..end]) {
                if *left == 0 {
                    return at;
                }
                at += 1;
                if entry.revents != 0 {
                    *left -= 1;
                    let ready = directions(entry.revents);
                    out.push(Event { index: owner.index, generation: owner.generation, ready });
                }
            }
        }
        at
    }
}

/// What is ready, of what poll says.
#[inline]
fn directions(revents: i16) -> u8 {
    let broken = revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0;
    let mut ready = 0;
    if broken || revents & (libc::POLLIN | libc::POLLRDHUP) != 0 {
        ready |= IN;
    }
    if broken || revents & libc::POLLOUT != 0 {
        ready |= OUT;
    }
    if broken || revents & libc::POLLRDHUP != 0 {
        ready |= BEHIND;
    }
    ready
}

/// What to ask poll for.
#[inline]
fn events(directions: u8) -> i16 {
    let input = if directions & IN != 0 { libc::POLLIN | libc::POLLRDHUP } else { 0 };
    let output = if directions & OUT != 0 { libc::POLLOUT } else { 0 };
    input | output
}

impl Poller for PollSet {
    const NAME: Name = Name::Poll;
    const TELLS_ONCE: bool = false;

    fn ask(&mut self, on: Target, _: u8, directions: u8, _: &mut Counters) -> io::Result<()> {
        let index = on.index as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, NONE);
        }
        let events = events(directions);
        let place = &mut self.places[index];
        if *place != NONE {
            self.set[*place as usize].events = events;
            return Ok(());
        }
        // Fewer than descriptors.
        *place = self.set.len() as u32;
        self.set.push(libc::pollfd { fd: on.number, events, revents: 0 });
        self.owners.push(Token { index: on.index, generation: on.generation });
        Ok(())
    }

    fn forget(&mut self, on: Target, _: &mut Counters) {
        self.narrow(on.index, 0);
    }

    fn narrow(&mut self, index: u32, directions: u8) {
        let place = self.places[index as usize] as usize;
        if directions != 0 {
            self.set[place].events = events(directions);
            return;
        }
        self.places[index as usize] = NONE;
        self.set.swap_remove(place);
        self.owners.swap_remove(place);
        if let Some(moved) = self.owners.get(place) {
            self.places[moved.index as usize] = place as u32;
        }
    }

    fn wait(&mut self, until: Until, counters: &mut Counters, out: &mut Vec<Event>) -> io::Result<()> {
        // Not again for what is known already: the kernel would walk everybody, also those who wait for nothing yet.
        if self.untold > 0 {
            self.tell(out);
            if !out.is_empty() {
                return Ok(());
            }
        }
        counters.system_calls += 1;
        let mut span = wait_span(until);
        let span = span.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
        let (set, count) = (self.set.as_mut_ptr(), self.set.len());
        // SAFETY: `count` live entries, and a timespec of this frame if any, all written during the call only; no
        // signal mask is given. (By number, as in `sys::attempt`.)
        let ready =
            unsafe { libc::syscall(libc::SYS_ppoll, set, count, span, std::ptr::null::<u8>(), 0usize) };
        // Interrupted, the kernel has written nothing, and what is written there is old.
        let mut ready = check_wait(ready)?;
        if ready > 0 && self.set[ALARM].revents != 0 {
            ready -= 1;
            alarm::silence(&self.alarm, counters);
        }
        (self.start, self.untold) = (FIRST, ready);
        if ready > 0 {
            self.tell(out);
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
    use std::collections::BTreeSet;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    const TURN: usize = crate::COMPLETIONS_PER_TURN;

    /// Two turns and a hundred entries of one descriptor under many names, which is always ready.
    fn more_than_a_turn() -> (PollSet, u32, [UnixStream; 2]) {
        let (mut tell, hear) = UnixStream::pair().unwrap();
        tell.write_all(b"x").unwrap();
        let mut set = PollSet::new().unwrap();
        let all = 2 * TURN as u32 + 100;
        for index in 0..all {
            let on = Target { number: hear.as_raw_fd(), index, generation: 7 };
            set.ask(on, 0, IN, &mut Counters::default()).unwrap();
        }
        (set, all, [tell, hear])
    }

    fn wait(set: &mut PollSet, counters: &mut Counters) -> Vec<u32> {
        let mut events = Vec::new();
        set.wait(Until::Now, counters, &mut events).unwrap();
        assert!(events.iter().all(|event| (event.generation, event.ready) == (7, IN)));
        events.into_iter().map(|event| event.index).collect()
    }

    #[test]
    fn more_than_a_turn_takes_are_told_in_turns_of_one_call_and_nobody_is_left_out_or_told_twice() {
        let (mut set, all, _open) = more_than_a_turn();
        let mut counters = Counters::default();
        for calls in 1..4 {
            let mut told = BTreeSet::new();
            for turn in [TURN, TURN, 100] {
                let events = wait(&mut set, &mut counters);
                assert_eq!((events.len(), counters.system_calls), (turn, calls));
                told.extend(events);
            }
            assert_eq!(told.len(), all as usize);
        }
    }

    #[test]
    fn who_goes_before_he_is_told_is_not_told_and_who_moves_into_his_place_is() {
        let (mut set, all, _open) = more_than_a_turn();
        let mut counters = Counters::default();
        let mut told: BTreeSet<_> = wait(&mut set, &mut counters).into_iter().collect();
        let is_gone = |index: &u32| index.is_multiple_of(3);
        (0..all).filter(is_gone).for_each(|index| set.narrow(index, 0));
        // What is left of the call, and all of another.
        for _ in 0..4 {
            let events = wait(&mut set, &mut counters);
            assert!(!events.iter().any(is_gone));
            told.extend(events);
        }
        assert!((0..all).filter(|index| !is_gone(index)).all(|index| told.contains(&index)));
        (0..all).filter(|index| !is_gone(index)).for_each(|index| set.narrow(index, 0));
        assert_eq!(wait(&mut set, &mut counters), []);
    }

    #[test]
    fn what_moves_into_a_gap_is_found_there() {
        let pairs: Vec<_> = (0..40).map(|_| UnixStream::pair().unwrap()).collect();
        let mut set = PollSet::new().unwrap();
        let mut counters = Counters::default();
        for (index, (_, hear)) in pairs.iter().enumerate() {
            let on = Target { number: hear.as_raw_fd(), index: index as u32, generation: 0 };
            set.ask(on, 0, IN, &mut counters).unwrap();
        }
        for index in (0..40).step_by(3) {
            set.narrow(index, 0);
        }
        for (tell, _) in &pairs {
            let mut tell: &UnixStream = tell;
            tell.write_all(b"x").unwrap();
        }
        let mut events = Vec::new();
        set.wait(Until::Now, &mut counters, &mut events).unwrap();
        let told: BTreeSet<_> = events.iter().map(|event| event.index).collect();
        assert_eq!(told, (0..40).filter(|index| index % 3 != 0).collect());
        assert_eq!(events.len(), told.len());
        // Those that are left move too.
        for index in &told {
            set.narrow(*index, 0);
        }
        events.clear();
        set.wait(Until::Now, &mut counters, &mut events).unwrap();
        assert_eq!((events.len(), set.set.len()), (0, 1));
    }
}
