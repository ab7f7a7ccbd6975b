//! Deadlines of a worker's connections, without a timer and without reading a clock for each.
//!
//! Each connection has a seat: what it waits for, and since which second. A connection writes there as it goes; once
//! a second the worker's sweep looks at every seat and cancels what is overdue. So a deadline is kept to within a
//! second, and costs a request two stores.

use ringroad_engine::net::Canceller;
use ringroad_wire::Deadlines;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Duration;

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// The next request.
    Request,
    /// The rest of a head.
    Head,
    /// More of a body.
    Body,
    /// Room to send.
    Send,
    /// A handler: as long as it likes.
    Handler,
    /// The peer's end, after the last answer.
    End,
}

/// Why a connection was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was not.
    None,
    /// What it waited for took too long.
    Overdue(Waits),
    /// The server stops.
    Stopped,
}

/// A seat, and whose it was: a seat that was left and taken again is another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeatId {
    index: u32,
    visit: u32,
}

struct Seat {
    waits: Waits,
    verdict: Verdict,
    /// The second it began to wait in.
    since: u32,
    /// Bytes of the body that came while its present time of grace ran.
    progress: u32,
    /// Seconds left of that time. They pass while the body is waited for, and stand still while a handler, or the
    /// answer's receiver, is.
    grace_left: u16,
    /// Which of its visitors this is.
    visit: u32,
    /// `None`: the seat is free, and `since` tells the next free one.
    canceller: Option<Canceller>,
}

const _: () = assert!(size_of::<Seat>() <= 40);

/// The seats of a worker.
pub(crate) struct Seats {
    seats: RefCell<Vec<Seat>>,
    free: std::cell::Cell<u32>,
    /// By seat: the address of a peer somebody has asked for, and at which visit. Empty until somebody asks.
    peers: RefCell<Vec<Option<(u32, SocketAddr)>>>,
    deadlines: Deadlines,
    /// The second of the last sweep.
    swept: std::cell::Cell<u32>,
}

/// No seat.
const NONE: u32 = u32::MAX;

/// How long the peer has to end its side after the last answer, or up to a second less.
const LINGER: Duration = Duration::from_secs(5);

/// While a server stops, a connection that was quiet for so long is closed; one that was busy a moment ago may have a
/// request on its way.
const QUIET: Duration = Duration::from_secs(1);

impl Seats {
    pub(crate) fn new(deadlines: Deadlines) -> Seats {
        Seats {
            seats: RefCell::new(Vec::new()),
            free: std::cell::Cell::new(NONE),
            peers: RefCell::new(Vec::new()),
            deadlines,
            swept: std::cell::Cell::new(0),
        }
    }

    /// A seat for a connection that has just come.
    pub(crate) fn take(&self, canceller: Canceller, now: u32) -> SeatId {
        let mut seats = self.seats.borrow_mut();
        let mut seat = Seat {
            waits: Waits::Request,
            verdict: Verdict::None,
            since: now,
            progress: 0,
            grace_left: 0,
            visit: 0,
            canceller: Some(canceller),
        };
        let index = self.free.get();
        if let Some(free) = seats.get_mut(index as usize) {
            self.free.set(free.since);
            seat.visit = free.visit;
            let visit = seat.visit;
            *free = seat;
            return SeatId { index, visit };
        }
        // Fewer than descriptors, whose number is a positive i32.
        seats.push(seat);
        SeatId { index: seats.len() as u32 - 1, visit: 0 }
    }

    /// A connection has gone.
    pub(crate) fn leave(&self, id: SeatId) {
        let canceller = {
            let mut seats = self.seats.borrow_mut();
            let Some(seat) = seats.get_mut(id.index as usize) else { return };
            seat.since = self.free.replace(id.index);
            seat.visit = seat.visit.wrapping_add(1);
            seat.canceller.take()
        };
        drop(canceller);
    }

    /// A connection waits for this from now on; for a head it goes on waiting, if it did, and the time of a body is
    /// counted apart.
    #[inline]
    pub(crate) fn set(&self, id: SeatId, waits: Waits, now: u32) {
        if let Some(seat) = self.seats.borrow_mut().get_mut(id.index as usize) {
            if seat.waits != waits || waits != Waits::Head {
                seat.since = now;
            }
            seat.waits = waits;
        }
    }

    /// A request has begun whose body is still to come.
    pub(crate) fn begin_body(&self, id: SeatId) {
        if let Some(seat) = self.seats.borrow_mut().get_mut(id.index as usize) {
            // The second it begins in may be nearly over.
            seat.grace_left = grace(&self.deadlines).saturating_add(1);
            seat.progress = 0;
        }
    }

    /// Bytes of a body have come.
    pub(crate) fn progress(&self, id: SeatId, bytes: usize) {
        if let Some(seat) = self.seats.borrow_mut().get_mut(id.index as usize) {
            seat.progress = seat.progress.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
    }

    /// Why a connection was cancelled.
    pub(crate) fn verdict(&self, id: SeatId) -> Verdict {
        self.seats.borrow().get(id.index as usize).map_or(Verdict::None, |seat| seat.verdict)
    }

    /// The address of a connection's peer, asked for once: `None` when the connection is gone.
    pub(crate) fn peer(&self, id: SeatId) -> Option<SocketAddr> {
        let index = id.index as usize;
        let seats = self.seats.borrow();
        let canceller = seats.get(index).filter(|seat| seat.visit == id.visit)?.canceller.as_ref()?;
        if let Some(Some((visit, address))) = self.peers.borrow().get(index)
            && *visit == id.visit
        {
            return Some(*address);
        }
        let address = canceller.peer_addr().ok()?;
        let mut peers = self.peers.borrow_mut();
        if peers.len() <= index {
            peers.resize(index + 1, None);
        }
        if let Some(peer) = peers.get_mut(index) {
            *peer = Some((id.visit, address));
        }
        Some(address)
    }

    /// Cancels what is overdue at `now`.
    pub(crate) fn sweep(&self, now: u32, stopping: bool) {
        let mut overdue = Vec::new();
        let passed = now.saturating_sub(self.swept.replace(now));
        {
            let mut seats = self.seats.borrow_mut();
            for seat in seats.iter_mut() {
                if seat.canceller.is_some()
                    && pass(seat, now, passed, stopping, &self.deadlines) != Verdict::None
                {
                    overdue.extend(seat.canceller.clone());
                }
            }
        }
        // Cancelling wakes tasks, which come back here later.
        for canceller in overdue {
            canceller.cancel();
        }
    }
}

fn seconds(now: u32, since: u32) -> Duration {
    Duration::from_secs(now.saturating_sub(since).into())
}

/// The time of grace of a body, in whole seconds.
fn grace(deadlines: &Deadlines) -> u16 {
    u16::try_from(deadlines.body_grace.as_secs()).unwrap_or(u16::MAX)
}

/// So many seconds have passed for who sits here, and it is `now`.
fn pass(seat: &mut Seat, now: u32, passed: u32, stopping: bool, deadlines: &Deadlines) -> Verdict {
    if seat.waits == Waits::Body {
        seat.grace_left = seat.grace_left.saturating_sub(u16::try_from(passed).unwrap_or(u16::MAX));
    }
    let verdict = judge(seat, now, stopping, deadlines);
    if verdict != Verdict::None {
        seat.verdict = verdict;
    } else if seat.waits == Waits::Body && seat.grace_left == 0 {
        seat.grace_left = grace(deadlines);
        seat.progress = 0;
    }
    verdict
}

fn judge(seat: &Seat, now: u32, stopping: bool, deadlines: &Deadlines) -> Verdict {
    // The second it began in may have been nearly over: only whole ones count, so nobody is cut short.
    let waited = Duration::from_secs(now.saturating_sub(seat.since).saturating_sub(1).into());
    let overdue = match seat.waits {
        Waits::Request if stopping && seconds(now, seat.since) >= QUIET => return Verdict::Stopped,
        Waits::Request => waited >= deadlines.keep_alive,
        Waits::Head => waited >= deadlines.head,
        Waits::Body => {
            let least = u64::from(deadlines.body_bytes_per_second_min) * u64::from(grace(deadlines));
            seat.grace_left == 0 && u64::from(seat.progress) < least
        }
        Waits::Send => waited >= deadlines.send_stall,
        // Whoever stops has said its last words to everybody.
        Waits::End if stopping => waited >= QUIET,
        // Whoever is turned out waits for this as well: it begins with a sweep, so with whole seconds it would end a sweep
        // late. Who comes to it by itself may be cut short by what is left of a second, which harms nobody.
        Waits::End => seconds(now, seat.since) >= LINGER,
        Waits::Handler => false,
    };
    if overdue { Verdict::Overdue(seat.waits) } else { Verdict::None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seat(waits: Waits, since: u32) -> Seat {
        Seat { waits, verdict: Verdict::None, since, progress: 0, grace_left: 0, visit: 0, canceller: None }
    }

    fn verdict(waits: Waits, since: u32, now: u32) -> Verdict {
        judge(&seat(waits, since), now, false, &Deadlines::default())
    }

    /// The seconds at whose end a body is waited for, or (`false`) a handler; with so many bytes in each. How many
    /// pass until it is overdue.
    fn seconds_of(waiting: impl IntoIterator<Item = bool>, bytes: usize) -> Option<usize> {
        let seats = Seats::new(Deadlines::default());
        seats.seats.borrow_mut().push(seat(Waits::Handler, 0));
        let id = SeatId { index: 0, visit: 0 };
        seats.begin_body(id);
        waiting.into_iter().zip(1_u32..).position(|(waits, now)| {
            // Each piece that comes is shown to the handler, and then the next is waited for.
            for waits in [Waits::Handler, Waits::Body] {
                seats.set(id, waits, now - 1);
            }
            seats.progress(id, bytes);
            if !waits {
                seats.set(id, Waits::Handler, now - 1);
            }
            let mut seats = seats.seats.borrow_mut();
            pass(&mut seats[0], now, 1, false, &Deadlines::default()) == Verdict::Overdue(Waits::Body)
        })
    }

    #[test]
    fn a_body_has_its_time_however_its_pieces_come() {
        assert_eq!(seconds_of([true; 100], 1), Some(10));
        assert_eq!(seconds_of([true; 100], 1023 * 10 / 11), Some(10));
        assert_eq!(seconds_of([true; 100], 1024), None);
        // What came too much of counts in its own time of grace only.
        assert_eq!(seconds_of([true; 100], 1000), Some(20));
    }

    #[test]
    fn while_a_handler_is_busy_the_time_of_a_body_stands_still() {
        assert_eq!(seconds_of([false; 1000], 0), None);
        assert_eq!(seconds_of([true, false].repeat(50), 1), Some(20));
    }

    #[test]
    fn nobody_is_cut_short_and_a_deadline_is_kept_to_within_a_second() {
        // It may have begun at the very end of its second.
        assert_eq!(verdict(Waits::Head, 100, 110), Verdict::None);
        assert_eq!(verdict(Waits::Head, 100, 111), Verdict::Overdue(Waits::Head));
    }

    #[test]
    fn who_was_turned_out_is_gone_at_the_sweep_five_seconds_later() {
        assert_eq!(verdict(Waits::End, 111, 115), Verdict::None);
        assert_eq!(verdict(Waits::End, 111, 116), Verdict::Overdue(Waits::End));
    }
}
