//! `poll(2)`: the kernel gets the whole array of descriptors for every wait.
//!
//! The kernel scans the whole array. The driver scans it until it has found as many ready entries as the
//! kernel counted. So a wait costs more with each waiting connection, busy or idle. In return nothing is
//! registered in the kernel, and a change of interest is an assignment. The array holds only descriptors with
//! an interest and is kept dense: the last entry moves into a gap. (Errors and hang-ups are always reported,
//! so an entry without an interest would end every wait.)
//!
//! References: poll(2); ppoll(2) overwrites its time-out with the remaining time.

use super::readiness::{BEHIND, Event, IN, OUT, Poller};
use super::{DriverName, alarm};
use crate::clock::Until;
use crate::counters::Counters;
use crate::descriptor::NONE;
use crate::op::{Target, Token};
use crate::sys::{check_wait, wait_span};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// Index of the alarm in the array.
const ALARM: usize = 0;
/// Index of the first descriptor.
const FIRST: usize = 1;

/// Entries that are tested together: one cache line.
const TOGETHER: usize = 8;

/// The array of `poll(2)`, with the table entry of each element.
pub(crate) struct PollSet {
    /// What the kernel gets: the alarm, then the descriptors with an interest.
    set: Vec<libc::pollfd>,
    /// The table entry of each element: `owners[i]` belongs to `set[i]`. The alarm has none.
    owners: Vec<Token>,
    /// Index in the array, by index in the table of descriptors; [`NONE`]: not in the array.
    places: Vec<u32>,
    /// Where the next scan begins, and how many ready entries the kernel has counted that were not reported
    /// yet, because a turn takes fewer.
    start: usize,
    untold: usize,
    alarm: Arc<OwnedFd>,
}

impl PollSet {
    pub(crate) fn new() -> io::Result<PollSet> {
        let alarm = Arc::new(alarm::new()?);
        let first = libc::pollfd { fd: alarm.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let unowned = Token { index: NONE, generation: 0 };
        Ok(PollSet {
            set: vec![first],
            owners: vec![unowned],
            places: Vec::new(),
            start: FIRST,
            untold: 0,
            alarm,
        })
    }

    /// Appends ready entries that were not reported yet, at most a turn's worth.
    ///
    /// An entry that was removed meanwhile is still in the count, and the entry that moved to its index may
    /// be skipped. That one is still ready at the next wait.
    fn tell(&mut self, out: &mut Vec<Event>) {
        let turn = self.untold.min(crate::COMPLETIONS_PER_TURN);
        let mut left = turn;
        self.start = self.collect(self.start, self.set.len(), &mut left, out);
        self.untold -= turn - left;
        if self.start >= self.set.len() {
            self.untold = 0;
        }
    }

    /// Appends ready entries of this range, at most `left`; returns where the scan stopped.
    fn collect(&self, from: usize, to: usize, left: &mut usize, out: &mut Vec<Event>) -> usize {
        let mut at = from;
        while at < to && *left > 0 {
            let end = to.min(at + TOGETHER);
            let entries = &self.set[at..end];
            // One branch for all of them: with many connections most are idle.
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

/// Translates `revents` into directions.
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

/// Translates directions into `events`.
#[inline]
fn events(directions: u8) -> i16 {
    let input = if directions & IN != 0 { libc::POLLIN | libc::POLLRDHUP } else { 0 };
    let output = if directions & OUT != 0 { libc::POLLOUT } else { 0 };
    input | output
}

impl Poller for PollSet {
    const NAME: DriverName = DriverName::Poll;
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
        // There are fewer elements than descriptors.
        *place = self.set.len() as u32;
        self.set.push(libc::pollfd { fd: on.number, events, revents: 0 });
        self.owners.push(Token { index: on.index, generation: on.generation });
        Ok(())
    }

    fn forget(&mut self, on: Target, _: &mut Counters) {
        self.reduce_interest(on.index, 0);
    }

    fn reduce_interest(&mut self, index: u32, directions: u8) {
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
        // Entries that are known to be ready need no system call, which would scan the whole array.
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
        // SAFETY: `count` live entries, and a timespec of this frame if any, all written during the call
        // only; no signal mask is given. (By number, as in `sys::attempt`.)
        let ready =
            unsafe { libc::syscall(libc::SYS_ppoll, set, count, span, std::ptr::null::<u8>(), 0usize) };
        // After EINTR the kernel has written nothing: `revents` is from an earlier call.
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

    /// Registers one descriptor, which is always ready, under as many indices as two turns take, and a
    /// hundred more.
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
    fn more_entries_than_a_turn_takes_are_each_reported_once_from_one_call() {
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
    fn an_entry_that_is_removed_before_its_report_is_not_reported_and_the_one_that_replaces_it_is() {
        let (mut set, all, _open) = more_than_a_turn();
        let mut counters = Counters::default();
        let mut told: BTreeSet<_> = wait(&mut set, &mut counters).into_iter().collect();
        let is_gone = |index: &u32| index.is_multiple_of(3);
        (0..all).filter(is_gone).for_each(|index| set.reduce_interest(index, 0));
        // The rest of this call's entries, and all of the next call's.
        for _ in 0..4 {
            let events = wait(&mut set, &mut counters);
            assert!(!events.iter().any(is_gone));
            told.extend(events);
        }
        assert!((0..all).filter(|index| !is_gone(index)).all(|index| told.contains(&index)));
        (0..all).filter(|index| !is_gone(index)).for_each(|index| set.reduce_interest(index, 0));
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
            set.reduce_interest(index, 0);
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
        // The remaining entries move too.
        for index in &told {
            set.reduce_interest(*index, 0);
        }
        events.clear();
        set.wait(Until::Now, &mut counters, &mut events).unwrap();
        assert_eq!((events.len(), set.set.len()), (0, 1));
    }
}
